"""Imports point one way."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "draftbench"

FORBIDDEN = [
    ("servers", ("load", "losslessness", "statistics", "figures", "latex_report", "html_report", "engine")),
    (
        "engine",
        ("load", "losslessness", "statistics", "figures", "latex_report", "html_report", "servers", "workloads"),
    ),
    ("workloads", ("load", "losslessness", "statistics", "figures", "servers", "engine", "plan")),
    ("load", ("losslessness", "statistics", "figures", "latex_report", "html_report", "engine", "plan")),
    ("statistics", ("figures", "latex_report", "html_report", "servers", "engine", "load")),
    ("figures", ("statistics", "losslessness", "latex_report", "html_report", "servers", "engine", "load")),
    ("latex_report", ("statistics", "losslessness", "html_report", "servers", "engine", "load")),
    ("html_report", ("statistics", "losslessness", "latex_report", "servers", "engine", "load")),
    ("plan", ("load", "statistics", "losslessness", "figures", "servers.leases", "servers.keeper", "engine")),
    ("config", ("matrix", "plan", "load", "statistics", "figures", "servers", "engine", "workloads", "records")),
    ("records.py", ("config", "matrix", "plan", "load", "statistics", "figures", "servers", "engine", "workloads")),
    ("errors.py", ("config", "matrix", "records", "plan", "load", "statistics", "servers", "engine", "workloads")),
    ("engine/draft_tree.py", ("engine",)),
]


def _files(room: str) -> list[Path]:
    path = PACKAGE / room
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize(("room", "others"), FORBIDDEN, ids=[room for room, _ in FORBIDDEN])
def test_a_room_does_not_know_the_rooms_that_build_on_it(room: str, others: tuple[str, ...]) -> None:
    """No file of the room imports one of the others."""
    files = _files(room)
    banned = tuple(f"draftbench.{other}" for other in others)
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in files
        for name in _imports(path)
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in banned)
    ]

    assert files
    assert wrong == []


def test_nothing_that_rules_import_needs_torch_or_sglang() -> None:
    """torch stands in the engine package alone, sglang nowhere: the driver environment has neither."""
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in _imports(path)
        if name.split(".")[0] == "sglang"
        or (name.split(".")[0] == "torch" and path.relative_to(PACKAGE).parts[0] != "engine")
    ]

    assert wrong == []
