"""What produced a number (versions, commit, machine), and files that appear whole or not at all."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

MEASURING_PACKAGES = ("aiohttp", "orjson", "pyarrow", "pydantic")
_PROJECT_ROOT = Path(__file__).resolve().parent.parent


def atomic_write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one step: a reader sees the old file or the whole new one, also after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _give_usual_permissions(name)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def atomic_write_text(path: Path, text: str) -> None:
    """Write UTF-8 text in one step."""
    atomic_write_bytes(path, text.encode())


def atomic_write_json(path: Path, content: Any) -> None:
    """Write indented JSON in one step; keys keep their order, paths become strings."""
    atomic_write_bytes(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str))


def _give_usual_permissions(name: str) -> None:
    """mkstemp makes private files; results are read by others."""
    mask = os.umask(0)
    os.umask(mask)
    Path(name).chmod(0o666 & ~mask)


def utc_now() -> str:
    """The wall time for records, to the second; durations come from the monotonic clock only."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def package_versions(names: tuple[str, ...] = MEASURING_PACKAGES) -> dict[str, str | None]:
    """Installed version by package; None = not installed in this environment."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_state(folder: Path = _PROJECT_ROOT) -> dict[str, Any]:
    """`commit` and whether tracked files differ from it (`dirty`); None with a reason outside a git checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "reason": "not a git checkout, or git is not installed"}
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-c", f"safe.directory={folder}", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_model() -> str | None:
    """The processor's name as Linux gives it; None where the kernel does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, kernel and architecture; never a host name."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }


def collect() -> dict[str, Any]:
    """The provenance that every cell and launch record carries."""
    return {
        "git": git_state(),
        "python": platform.python_version(),
        "interpreter": sys.implementation.name,
        "packages": package_versions(),
        "machine": machine(),
    }
