"""Validates JSON documents in a process of its own, each under a time limit that the kernel enforces.

Run as a program it answers one JSON line [schema, document] with one line [passed, well_formed, reason].
A pattern with catastrophic backtracking holds Python's interpreter lock for ever, so that neither threads nor
handlers of signals could stop it: each document is checked in a fork that SIGALRM simply ends.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonschema import FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import Draft202012Validator, validator_for

Verdict = tuple[bool | None, bool | None, str]

TIME_LIMIT_S = 10
REPOSITORY = Path(__file__).resolve().parents[2]


def validate(jobs: Sequence[tuple[dict[str, Any], Any]], time_limit_s: int = TIME_LIMIT_S) -> list[Verdict]:
    """Return (passed, well_formed, reason) for each (schema, document); the schema's own draft applies."""
    if not jobs:
        return []
    command = [sys.executable, "-m", "draftbench.workloads.schema_validation", str(time_limit_s)]
    request = "".join(json.dumps(job) + "\n" for job in jobs)
    finished = subprocess.run(command, input=request, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    lines = finished.stdout.splitlines()
    if finished.returncode != 0 or len(lines) != len(jobs):
        return [(None, None, f"the validator ended with code {finished.returncode}")] * len(jobs)
    return [tuple(json.loads(line)) for line in lines]


def _check(schema: dict[str, Any], document: Any) -> Verdict:
    validator = validator_for(schema, default=Draft202012Validator)(schema, format_checker=FormatChecker())
    try:
        validator.validate(document)
    except ValidationError as error:
        return False, True, f"{error.json_path}: violates {error.validator}"
    except Exception as error:  # a schema that cannot be resolved or overflows the stack says nothing of the reply
        return None, True, f"the schema could not be applied: {type(error).__name__}"
    return True, True, "valid"


def _check_in_fork(job: list[Any], time_limit_s: int) -> Verdict:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(time_limit_s)
        os.write(writer, json.dumps(_check(*job)).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return None, True, f"validation took more than {time_limit_s} s"
    if status != 0:
        return None, True, f"the validator ended with status {status}"
    passed, well_formed, reason = json.loads(answer)
    return passed, well_formed, reason


def main() -> None:
    """Answer each line of stdin."""
    time_limit_s = int(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(_check_in_fork(json.loads(line), time_limit_s)), flush=True)


if __name__ == "__main__":
    main()
