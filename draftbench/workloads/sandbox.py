"""Runs generated Python under bubblewrap: no network, no files of the host, limits on memory, processes and time.

Where bubblewrap is missing or cannot start, nothing is run: "not graded", never a bare exec.
"""

import functools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from draftbench.workloads.schema_validation import Verdict

TIME_LIMIT_S = 10
MEMORY_BYTES = 1 << 30
PROCESSES = 32
FILE_BYTES = 1 << 20
OUTPUT_BYTES = 2000
TIMED_OUT = frozenset({124, 137, 128 + signal.SIGXCPU})
"""Exit codes of `timeout` and of programs that it or the CPU limit had to kill."""
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin")
PYTHON_HOME = "/python"
"""Where the sandbox sees this interpreter: its folder on the host may lie below one that only root may enter."""
NOBODY = "65534"


def run_humaneval(task: dict[str, Any], code: str) -> Verdict:
    """Run a task's unit tests on a reply's code; (passed, well_formed, reason).

    Code without the asked-for function is taken as a continuation of the prompt, as HumanEval was made for.
    """
    problem = sandbox_problem()
    if problem is not None:
        return None, None, f"not graded: {problem}"
    is_whole = f"def {task['entry_point']}(" in code
    program = f"{_imports(task['prompt'])}\n{code}" if is_whole else f"{task['prompt']}\n{code}"
    program += f"\n{task['test']}\ncheck({task['entry_point']})\n"
    try:
        compile(program, "reply", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return False, False, f"no valid Python: {type(error).__name__}"
    passed, reason = run_python(program)
    return passed, True, reason


def run_python(program: str) -> tuple[bool, str]:
    """Run a program in the sandbox; it passes by reaching its end, which a line unknown to it vouches for."""
    last_line = f"reached the end {secrets.token_hex(16)}"
    source = f"{program}\nprint({last_line!r})\n".encode()
    command = [*_bubblewrap(), *_limits(), *_python(), "-"]
    # Output goes to files, which the limit on file size holds down; a pipe would fill this process's memory.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            finished = subprocess.run(
                command, input=source, stdout=output, stderr=errors, timeout=TIME_LIMIT_S + 5, check=False
            )
        except subprocess.TimeoutExpired:
            return False, f"took more than {TIME_LIMIT_S} s"
        if finished.returncode == 0 and _tail(output).endswith(last_line):
            return True, "all tests passed"
        if finished.returncode in TIMED_OUT:
            return False, f"took more than {TIME_LIMIT_S} s"
        return False, f"exit code {finished.returncode}: {_tail(errors).rpartition(chr(10))[2][:120]}"


def _tail(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - OUTPUT_BYTES))
    return stream.read().decode(errors="replace").strip()


@functools.cache
def sandbox_problem() -> str | None:
    """Return why nothing can be run here, or None."""
    for tool in ("bwrap", "prlimit", "timeout", "setpriv"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        ready, reason = run_python("")
    except OSError as error:
        return f"bubblewrap cannot start: {error.strerror}"
    return None if ready else f"bubblewrap cannot start a program here: {reason}"


def _bubblewrap() -> list[str]:
    command = ["bwrap", *_namespaces(), "--die-with-parent", "--new-session", "--clearenv"]
    for folder in SYSTEM_FOLDERS:
        if Path(folder).exists():
            command += ["--ro-bind", folder, folder]
    command += ["--ro-bind", str(Path(sys.base_prefix).resolve()), PYTHON_HOME]
    command += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp", "--chdir", "/tmp"]  # noqa: S108 - inside
    return [*command, "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "PYTHONHASHSEED", "0"]


def _namespaces() -> list[str]:
    """Root keeps its user namespace, and with it the right to become nobody inside."""
    if os.geteuid() != 0:
        return ["--unshare-all"]
    capabilities = ["--cap-drop", "ALL"]
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
        capabilities += ["--cap-add", capability]
    return ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", *capabilities]


def _limits() -> list[str]:
    """The kernel exempts root from the limit on processes, so root's programs run as nobody."""
    limits = [f"--as={MEMORY_BYTES}", f"--nproc={PROCESSES}", f"--fsize={FILE_BYTES}", f"--cpu={TIME_LIMIT_S}"]
    command = ["timeout", "-k", "1", str(TIME_LIMIT_S)]
    if os.geteuid() == 0:
        command += ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--bounding-set=-all"]
    return [*command, "prlimit", *limits]


def _python() -> list[str]:
    return [f"{PYTHON_HOME}/bin/python{sys.version_info[0]}.{sys.version_info[1]}", "-I", "-S"]


def _imports(prompt: str) -> str:
    lines = [line for line in prompt.splitlines() if line.startswith(("import ", "from "))]
    return "\n".join(lines)
