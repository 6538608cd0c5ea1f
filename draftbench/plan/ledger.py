"""blocks.json: which arms each block has held, so that an arm added later comes in a block with its own AR."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftbench.errors import PlanError
from draftbench.layout import Layout


def read_ledger(project: Path, layout: Layout) -> dict[int, tuple[str, ...]]:
    """Arms by block, of the blocks in which something was launched; empty before the first run.

    A block that was only planned binds nothing: its arms can still be edited without a new block.
    Raises PlanError for a file that is no ledger.
    """
    path = project / layout.ledger
    if not path.is_file():
        return {}
    try:
        ledger = {int(block): tuple(map(str, arms)) for block, arms in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError, TypeError):
        raise PlanError(f"{path}: is no list of blocks; delete it to plan the blocks afresh") from None
    planned = _planned_sessions(project / layout.plan_json)
    return {
        block: arms
        for block, arms in ledger.items()
        if block not in planned or any(_was_launched(project, layout, key) for key in planned[block])
    }


def merged(ledger: Mapping[int, Sequence[str]], blocks: Mapping[int, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    """Add a plan's blocks to the ledger; an arm that left the config stays in the blocks that held it."""
    return {
        block: tuple(dict.fromkeys([*ledger.get(block, ()), *blocks.get(block, ())]))
        for block in sorted({*ledger, *blocks})
    }


def ledger_text(ledger: Mapping[int, Sequence[str]]) -> str:
    """The file's content."""
    return json.dumps({str(block): list(arms) for block, arms in ledger.items()}, indent=1) + "\n"


def _planned_sessions(plan_json: Path) -> dict[int, list[str]]:
    try:
        sessions = json.loads(plan_json.read_text())["sessions"]
        keys: dict[int, list[str]] = {}
        for session in sessions:
            keys.setdefault(int(session["block"]), []).append(str(session["key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return keys


def _was_launched(project: Path, layout: Layout, session: str) -> bool:
    if (project / layout.launch_record(session)).exists():
        return True
    return any((project / layout.session(session)).glob("*/cell.json"))
