"""Names and colours."""

import pytest

from draftbench.labels import arm_colours, arm_label, arm_order


@pytest.mark.parametrize(
    ("name", "method", "budget", "expected"),
    [
        ("ar", "AR", None, "AR"),
        ("dflash", "DFLASH", None, "DFlash"),
        ("ddtree-b15", "DDTREE", 15, "DDTree 15"),
        ("dflash-short", "DFLASH", None, "DFlash (dflash-short)"),
        ("lookahead", "OTHER", None, "lookahead (lookahead)"),
    ],
)
def test_labels_are_the_fields_own(name: str, method: str, budget: int | None, expected: str) -> None:
    """The method's usual name, the budget, and the arm's own name only where it says more."""
    assert arm_label(name, method, budget) == expected


def test_every_arm_has_a_colour_of_its_own() -> None:
    """Six budgets beside AR and DFlash: eight different colours."""
    arms = [("ar", "AR", None), ("d", "DFLASH", None), *[(f"t{b}", "DDTREE", b) for b in (8, 12, 16, 20, 24, 32)]]

    assert len(set(arm_colours(arms).values())) == 8


def test_arms_are_ordered_baseline_chain_trees_by_budget() -> None:
    """AR, DFlash, then DDTree by rising budget, whatever else comes last."""
    arms = [("DDTREE", 31), ("NGRAM", None), ("DDTREE", 7), ("AR", None), ("DFLASH", None)]

    assert sorted(arms, key=lambda arm: arm_order(*arm)) == [
        ("AR", None),
        ("DFLASH", None),
        ("DDTREE", 7),
        ("DDTREE", 31),
        ("NGRAM", None),
    ]
