"""Where the numbers come from: plan, engine, versions and machine, as the measured cells recorded them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from draftbench.layout import Layout

_FROM_PLAN = ("config_sha256", "plan_sha256", "seed", "protocol", "engine", "device", "temperature", "top_p")
_FROM_CELL = ("engine", "engine_version", "devices")


def summarize_provenance(layout: Layout, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the plan and, from one cell a session, every value that a setting took over the run.

    tables/provenance.json is taken instead of the cells where aggregation wrote one.
    """
    summary: dict[str, Any] = {name: plan[name] for name in _FROM_PLAN if plan.get(name) is not None}
    for model in ("target", "drafter"):
        content = plan.get(model)
        if isinstance(content, Mapping) and content.get("name"):
            summary[model] = content["name"]
    written = layout.root / "tables" / "provenance.json"
    if written.exists():
        return {**summary, **_read(written)}
    return {**summary, **_measured(layout, plan)}


def _measured(layout: Layout, plan: Mapping[str, Any]) -> dict[str, Any]:
    seen: dict[str, dict[str, None]] = {}
    for record in _one_record_a_session(layout, plan):
        chosen = {name: record.get(name) for name in _FROM_CELL}
        for key, value in _flat({**chosen, **(record.get("provenance") or {})}):
            seen.setdefault(key, {})[value] = None
    return {f"measured.{key}": "; ".join(values) for key, values in seen.items()}


def _one_record_a_session(layout: Layout, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for session in plan.get("sessions") or []:
        paths = (layout.cell_record(session["key"], cell["key"]) for cell in session.get("cells") or [])
        found = next((path for path in paths if path.exists()), None)
        if found is not None:
            yield _read(found)


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{key}", ", ".join(str(entry) for entry in value)
        elif value is not None:
            yield f"{prefix}{key}", str(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
