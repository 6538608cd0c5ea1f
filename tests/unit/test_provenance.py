"""Provenance and atomic files."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from draftbench.provenance import (
    atomic_write_bytes,
    atomic_write_json,
    atomic_write_text,
    collect,
    git_state,
    package_versions,
)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The new content stands alone in a folder that was made for it."""
    path = tmp_path / "deep" / "file.txt"
    atomic_write_text(path, "old and long")
    atomic_write_text(path, "ñew")

    assert path.read_text(encoding="utf-8") == "ñew"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk (here: fsync fails) changes nothing and leaves nothing."""
    path = tmp_path / "file"
    atomic_write_bytes(path, b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write_bytes(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_old_or_new_never_half(tmp_path: Path) -> None:
    """SIGKILL in the midst of many writes: the file holds one of the two contents."""
    path = tmp_path / "file"
    code = (
        "import itertools, pathlib, sys; sys.path.insert(0, '.')\n"
        "from draftbench.provenance import atomic_write_bytes\n"
        f"path = pathlib.Path({str(path)!r})\n"
        "for letter in itertools.cycle(b'ab'): atomic_write_bytes(path, bytes([letter]) * 1_000_000)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait()

    assert path.read_bytes() in {b"a" * 1_000_000, b"b" * 1_000_000}


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    """The mode is the umask's, not mkstemp's private one."""
    path = tmp_path / "file"
    former = os.umask(0o022)
    try:
        atomic_write_bytes(path, b"")
    finally:
        os.umask(former)

    assert path.stat().st_mode & 0o777 == 0o644


def test_json_is_for_people_too(tmp_path: Path) -> None:
    """Indented, keys in order, paths as text."""
    path = tmp_path / "file.json"
    atomic_write_json(path, {"b": Path("x/y"), "a": (1, None)})

    assert path.read_text() == '{\n  "b": "x/y",\n  "a": [\n    1,\n    null\n  ]\n}'


def test_a_missing_package_is_none_not_an_error() -> None:
    """The measuring host may lack what analysis needs."""
    versions = package_versions(("pydantic", "no-such-package"))

    assert versions["no-such-package"] is None
    assert versions["pydantic"] is not None


def test_a_checkout_has_a_commit_and_tells_changes(tmp_path: Path) -> None:
    """Clean after a commit, dirty after an edit; an untracked file does not count."""
    for command in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    (tmp_path / "file").write_text("one")
    subprocess.run(["git", "-C", tmp_path, "add", "file"], check=True)
    subprocess.run(["git", "-C", tmp_path, "commit", "-q", "-m", "one"], check=True)
    (tmp_path / "untracked").write_text("")
    clean = git_state(tmp_path)
    (tmp_path / "file").write_text("two")

    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    assert git_state(tmp_path)["dirty"] is True


def test_without_git_there_is_a_reason(tmp_path: Path) -> None:
    """An unpacked archive has no commit, and says so."""
    state = git_state(tmp_path)

    assert state["commit"] is None
    assert "not a git checkout" in state["reason"]


def test_no_host_name_leaves_the_machine() -> None:
    """Provenance names the processor and the kernel, never the host."""
    record = collect()

    assert platform.node() not in json.dumps(record)
    assert record["machine"]["cores"] >= 1
    assert record["python"] == platform.python_version()
