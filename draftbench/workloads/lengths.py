"""Length tables of a workload, in the target's tokens."""

from collections.abc import Sequence

from draftbench.workloads.schema import LengthSummary, LengthTable
from draftbench.workloads.selection import RenderedItem
from draftbench.workloads.templates import TargetTemplate


def length_table(items: Sequence[RenderedItem], template: TargetTemplate) -> LengthTable:
    """Return the lengths of a non-empty sample; reference replies are measured where the source has them."""
    turns = [turn for item in items for turn in item.turns]
    replies = [
        turn.expectation.text for turn in turns if turn.expectation is not None and turn.expectation.text is not None
    ]
    references = [template.count_tokens(reply) for reply in replies]
    return LengthTable(
        conversations=len(items),
        requests=len(turns),
        prompt_tokens=summarise([turn.prompt_tokens for turn in turns]),
        turns=summarise([len(item.turns) for item in items]),
        reference_tokens=summarise(references) if references else None,
    )


def summarise(lengths: Sequence[int]) -> LengthSummary:
    """Return the order statistics of a non-empty list; p90 is the smallest length that 90 % do not exceed."""
    ordered = sorted(lengths)
    return LengthSummary(
        count=len(ordered),
        minimum=ordered[0],
        median=(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2,
        mean=round(sum(ordered) / len(ordered), 1),
        p90=ordered[-(-9 * len(ordered) // 10) - 1],
        maximum=ordered[-1],
    )
