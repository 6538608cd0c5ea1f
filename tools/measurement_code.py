"""Guard of comparability: a digest of the code that can change a measurement, beside the protocol it belongs to.

    python tools/measurement_code.py                   compare, exit 1 where they differ
    python tools/measurement_code.py --harmless "why"  the change cannot move a number: record it
    python tools/measurement_code.py --raised          MEASUREMENT_PROTOCOL was raised: record it

Comments, docstrings and formatting do not count.
"""

import argparse
import ast
import hashlib
import json
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))

from draftbench.matrix import MEASUREMENT_PROTOCOL  # noqa: E402 - after the path is set

RECORD = PROJECT / "tests" / "data" / "measurement_code.json"
MEASURING_CODE = ("engine", "load", "servers", "workloads")


def code_digest() -> str:
    """The sha256 over the syntax trees of all measuring packages, docstrings removed."""
    content = hashlib.sha256()
    for path in sorted(path for package in MEASURING_CODE for path in (PROJECT / "draftbench" / package).rglob("*.py")):
        content.update(path.relative_to(PROJECT).as_posix().encode())
        content.update(_without_docstrings(path.read_text(encoding="utf-8")).encode())
    return content.hexdigest()


def _without_docstrings(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [statement for statement in body if not _is_text(statement)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def problem() -> str | None:
    """What keeps the record from matching the code, as one line; None where it matches."""
    record = json.loads(RECORD.read_text())
    if record["digest"] == code_digest() and record["protocol"] == MEASUREMENT_PROTOCOL:
        return None
    if record["protocol"] != MEASUREMENT_PROTOCOL:
        return "MEASUREMENT_PROTOCOL was raised: run tools/measurement_code.py --raised"
    return (
        "code that can change a measurement changed: raise MEASUREMENT_PROTOCOL in draftbench/matrix.py, "
        'or declare it with tools/measurement_code.py --harmless "why"'
    )


def main() -> int:
    """Compare or record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--harmless", metavar="WHY")
    parser.add_argument("--raised", action="store_true")
    arguments = parser.parse_args()
    if arguments.harmless or arguments.raised:
        _record(arguments.harmless)
    line = problem()
    if line:
        print(line, file=sys.stderr)
    return 1 if line else 0


def _record(harmless: str | None) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"protocol": MEASUREMENT_PROTOCOL, "harmless": []}
    if harmless is None or record["protocol"] != MEASUREMENT_PROTOCOL:
        record["harmless"] = []
    if harmless is not None:
        record["harmless"].append(harmless)
    record.update(protocol=MEASUREMENT_PROTOCOL, digest=code_digest())
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
