"""Trimming of emitted tokens and the counters of verify steps."""

import pytest

from draftbench.engine.acceptance import AcceptanceCount, emit


@pytest.mark.parametrize(
    ("chosen", "already", "limit", "tokens", "finish", "matched"),
    [
        ((5, 6, 7), 0, 10, (5, 6, 7), None, None),
        ((5, 2, 7), 0, 10, (5, 2), "stop", 2),
        ((5, 6, 7), 8, 10, (5, 6), "length", None),
        ((5, 6), 8, 10, (5, 6), "length", None),
        ((5, 2, 7), 8, 10, (5, 2), "length", None),
        ((2, 2), 0, 10, (2,), "stop", 2),
        ((5,), 0, 0, (), "length", None),
        ((9,), 0, 10, (9,), "stop", 9),
    ],
)
def test_emission(
    chosen: tuple[int, ...],
    already: int,
    limit: int,
    tokens: tuple[int, ...],
    finish: str | None,
    matched: int | None,
) -> None:
    """Cut behind an end token (2 or 9) or at the limit; an end token in the last allowed place counts as length."""
    emission = emit(chosen, already, limit, frozenset({2, 9}))
    assert (emission.tokens, emission.finish, emission.matched_stop) == (tokens, finish, matched)


def test_counts_agree_with_a_recorded_sglang_reply() -> None:
    """SGLang 0.5.17's histogram [13, 6, 3, 0, 1] at block 8: 23 steps, 16 correct, 161 proposed drafts."""
    count = AcceptanceCount()
    for accepted in [0] * 13 + [1] * 6 + [2] * 3 + [4]:
        count.add(accepted, proposed=7)
    assert (count.steps, count.accepted, count.proposed, count.histogram) == (23, 16, 161, [13, 6, 3, 0, 1])


def test_more_accepted_than_proposed_is_refused() -> None:
    """The invariant of a verify step."""
    with pytest.raises(AssertionError):
        AcceptanceCount().add(3, proposed=2)
