"""What both reports say in the same words."""

from collections.abc import Mapping
from typing import Any

from draftbench import sentences
from draftbench.figures import numbers
from draftbench.figures.study import Study
from draftbench.labels import workload_label


def plan_summary(study: Study) -> str:
    """One sentence on the matrix, and one on its expected duration."""
    sessions = list(study.plan.get("sessions") or [])
    cells = [cell for session in sessions for cell in session.get("cells") or []]
    planned = {str(session.get("arm")) for session in sessions}
    arms = [name for name, _, _ in study.arms if name in planned]
    arms += sorted(planned - set(arms))
    loads = list(dict.fromkeys(workload_label(str(cell.get("workload"))) for cell in cells))
    blocks = len({session.get("block") for session in sessions})
    text = (
        f"The plan holds {numbers.counted(len(arms), 'arm')} ({sentences.listed(study.label(arm) for arm in arms)}), "
        f"{numbers.counted(len(loads), 'workload')} ({sentences.listed(loads)}), {numbers.counted(blocks, 'block')}, "
        f"{numbers.counted(len(sessions), 'session')} and {numbers.counted(len(cells), 'cell')}."
    )
    primary = (
        f" The primary arm, named before the run, is {study.label(study.primary_arm)}." if study.primary_arm else ""
    )
    return f"{text}{primary}{_duration_words(study)}"


def _duration_words(study: Study) -> str:
    duration = study.plan.get("duration")
    if not isinstance(duration, dict):
        return ""
    seconds = {name: value for name, value in duration.items() if isinstance(value, (int, float))}
    expected = next((seconds[name] for name in ("expected_s", "expected", "seconds") if name in seconds), None)
    low, high = seconds.get("low_s", seconds.get("low")), seconds.get("high_s", seconds.get("high"))
    if expected is None:
        return ""
    span = f" ({numbers.duration(low)} to {numbers.duration(high)})" if low is not None and high is not None else ""
    return f" Expected duration: {numbers.duration(expected)}{span}."


def flattened(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(dotted key, text) pairs; lists are joined, missing values say so."""
    pairs: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            pairs += flattened(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            for place, entry in enumerate(value):
                pairs += flattened(entry, f"{name}[{place}].")
        elif isinstance(value, (list, tuple)):
            pairs.append((name, ", ".join(str(entry) for entry in value) or "none"))
        else:
            pairs.append((name, "not available" if value is None or value == {} else str(value)))
    return pairs
