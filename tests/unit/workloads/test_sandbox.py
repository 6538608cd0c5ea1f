"""Generated programs in the sandbox: what passes, and what does not get out."""

from pathlib import Path

import pytest

from draftbench.workloads import sandbox
from draftbench.workloads.checks import grade_replies
from draftbench.workloads.sandbox import run_humaneval, run_python, sandbox_problem
from draftbench.workloads.schema import Reference
from draftbench.workloads.sources.humaneval import humaneval_items

needs_bubblewrap = pytest.mark.skipif(sandbox_problem() is not None, reason=str(sandbox_problem()))

TASK = {
    "prompt": 'from math import sqrt\n\ndef root(x: float) -> float:\n    """Square root."""\n',
    "test": "def check(candidate):\n    assert candidate(9) == 3\n",
    "entry_point": "root",
}


@needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "passed", "well_formed"),
    [
        ("def root(x):\n    return sqrt(x)", True, True),
        ("    return sqrt(x)\n", True, True),
        ("def root(x):\n    return x", False, True),
        ("def root(x:\n", False, False),
        ("def root(x):\n    raise SystemExit(0)", False, True),
        ("import sys\ndef root(x): return 0\nprint('all tests passed')\nsys.exit(0)", False, True),
    ],
)
def test_unit_tests_decide(code: str, passed: bool, well_formed: bool) -> None:
    """Whole functions and continuations are run; leaving early with code 0 is no pass."""
    assert run_humaneval(TASK, code)[:2] == (passed, well_formed)


@needs_bubblewrap
def test_canonical_solutions_pass(wheel_cache: Path) -> None:
    """Five of HumanEval's own solutions, through the grader."""
    pairs = [
        (
            Reference(session_id="s", turn=0, item_id=item.item_id, check="humaneval", expected=expected.expected),
            expected.text,
        )
        for item in humaneval_items(wheel_cache)[:5]
        for expected in [item.requests[0].expectation]
    ]
    assert [grade.passed for grade in grade_replies(pairs)] == [True] * 5


@needs_bubblewrap
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os\nwhile True:\n    os.fork()", "Resource temporarily unavailable"),
        ("open('/usr/escaped', 'w')", "Read-only file system"),
        ("open('/etc/passwd')", "No such file or directory"),
        ("import socket\nsocket.create_connection(('1.1.1.1', 53), 2)", "Network is unreachable"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 22), 2)", "Connection refused"),
        ("x = bytearray(4 << 30)", "MemoryError"),
        ("open('/tmp/big', 'wb').write(b'x' * (8 << 20))", "File too large"),
        ("import os\nassert os.getuid() != 0 and not os.environ.get('HOME')\nos.setuid(0)", "not permitted"),
        ("import os, signal\nos.kill(1, 0)", "not permitted"),
    ],
)
def test_nothing_gets_out(program: str, reason: str) -> None:
    """Forks, writes, reads, the network, memory and other processes all end at a wall."""
    passed, found = run_python(program)
    assert not passed
    assert reason in found


@needs_bubblewrap
def test_endless_program_and_endless_output_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both end with a reason, and the output stays small."""
    monkeypatch.setattr(sandbox, "TIME_LIMIT_S", 1)
    assert run_python("while True: pass") == (False, "took more than 1 s")
    passed, reason = run_python("while True: print('x' * 100000)")
    assert not passed
    assert "File too large" in reason


def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reply is "not graded", with the reason, and its code does not run."""
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox_problem.cache_clear()
    try:
        target = tmp_path / "ran"
        verdict = run_humaneval(TASK, f"open({str(target)!r}, 'w')\ndef root(x): return 3")
        assert verdict == (None, None, "not graded: bwrap is not installed")
        assert not target.exists()
    finally:
        sandbox_problem.cache_clear()
