"""Validity rules: a sound cell passes, and each rule is broken alone."""

from dataclasses import replace
from typing import Any

import pytest

from draftbench.load.identities import RULES, CellFacts, check_cell, failure_class, median_step_ms
from draftbench.records import ChunkRecord, RequestRecord
from tests.unit.load.builders import MS, autoregressive_record, speculative_record

PROMPTS = {0: (5, 6, 7, 8), 1: (5, 6, 9, 9)}
FACTS = CellFacts(
    speculative=True,
    verify_width=8,
    planned_requests=2,
    instance_id="instance",
    prompts=PROMPTS,
    loop_lag_p99_ms=0.4,
    max_client_lag_share=0.1,
)


def later(**changes: Any) -> RequestRecord:
    """A second sound request, 100 ms after the first."""
    chunks = [ChunkRecord((110 + 10 * n) * MS, tokens) for n, tokens in enumerate((1, 2, 1, 3))]
    sound = {"request": 1, "conversation": "b", "sent_ns": 100 * MS, "chunks": chunks, "done_ns": 141 * MS}
    return speculative_record(**(sound | changes))


def broken(records: list[RequestRecord], facts: CellFacts = FACTS) -> dict[str, str]:
    """Names of the broken rules, with their details."""
    return {check.name: check.detail for check in check_cell(records, facts) if not check.passed}


def test_a_sound_cell_passes_every_rule() -> None:
    """Two correct requests break nothing."""
    checks = check_cell([speculative_record(), later()], FACTS)

    assert [check.name for check in checks] == [rule.name for rule in RULES]
    assert all(check.passed for check in checks)
    assert failure_class(checks) is None


@pytest.mark.parametrize(
    ("changes", "rule", "detail"),
    [
        ({"error": "truncated: ended"}, "all_requests_done", "turn 0: truncated: ended"),
        ({"instance_id": "another"}, "instance_unchanged", "answered by another"),
        ({"prompt_tokens": 5}, "prompt_tokens_are_the_ids_sent", "4 ids sent, 5 prompt tokens"),
        ({"completion_tokens": 6}, "chunk_tokens_sum_to_completion", "chunks hold 7 tokens"),
        ({"output_ids": [11] * 6}, "chunk_tokens_sum_to_completion", "6 ids came"),
        ({"max_new_tokens": 6}, "cap_held", "after 7 tokens, cap 6"),
        ({"finish_reason": "length"}, "cap_held", "'length' after 7 tokens, cap 8"),
        ({"accept_histogram": [2, 1, 1]}, "histogram_sums_to_steps", "holds 4 steps of 3"),
        ({"accept_histogram": [0, 3]}, "histogram_sums_to_steps", None),
        ({"accept_histogram": [1, 0, 2]}, "histogram_sums_to_steps", "4 accepted drafts of 3"),
        ({"accept_histogram": None}, "histogram_sums_to_steps", "holds 0 steps of 3"),
        ({"proposed_drafts": 45}, "proposed_drafts_fit_the_width", "45 drafts proposed, the verify width asks for 21"),
        ({"accepted_drafts": 2, "accept_histogram": [1, 2]}, "yield_within_acceptance_length", "6 tokens"),
        ({"cached_tokens": 3}, "cached_tokens_as_predicted", "3 cached tokens where at most 2"),
        ({"cached_tokens": None}, "cached_tokens_as_predicted", "None cached tokens"),
    ],
)
def test_each_identity_is_broken_alone(changes: dict[str, Any], rule: str, detail: str | None) -> None:
    """A lie in one field breaks the rule that watches it, and no other; None = the change is no lie."""
    found = broken([speculative_record(), later(**changes)])

    if detail is None:
        assert found == {}
    else:
        assert list(found) == [rule]
        assert detail in found[rule]


def test_missing_speculative_fields_on_a_speculative_arm_are_a_failure() -> None:
    """The server that answered does not speculate."""
    nothing = {"verify_steps": None, "accepted_drafts": None, "proposed_drafts": None, "accept_histogram": None}

    assert list(broken([speculative_record(), later(**nothing)])) == ["speculative_fields_fit_the_arm"]


def test_a_one_token_answer_needs_no_verify_step() -> None:
    """Speculative fields may be missing where the prefill's token was the last."""
    one = later(
        chunks=[ChunkRecord(110 * MS, 1)],
        completion_tokens=1,
        output_ids=[11],
        verify_steps=None,
        accepted_drafts=None,
        proposed_drafts=None,
        accept_histogram=None,
    )

    assert broken([speculative_record(), one]) == {}


def test_speculative_fields_on_the_ar_arm_are_a_failure() -> None:
    """The wrong server answered."""
    facts = replace(FACTS, speculative=False, verify_width=1, planned_requests=1)

    assert "wrong server" in broken([speculative_record()], facts)["speculative_fields_fit_the_arm"]
    assert broken([autoregressive_record()], facts) == {}


def test_a_request_that_was_never_sent_is_missed() -> None:
    """One record of two planned ones."""
    assert "1 of 2 planned requests" in broken([speculative_record()])["all_requests_done"]


def test_merged_chunks_are_marked_not_refused() -> None:
    """Two steps in one chunk keep the cell valid, and the detail counts the row."""
    joined = [ChunkRecord(110 * MS, 1), ChunkRecord(130 * MS, 3), ChunkRecord(140 * MS, 3)]
    checks = {check.name: check for check in check_cell([speculative_record(), later(chunks=joined)], FACTS)}

    assert checks["chunks_are_steps_or_marked"].passed
    assert checks["chunks_are_steps_or_marked"].detail == "1 of 2 requests marked merged"


def test_more_chunks_than_steps_cannot_be_merging() -> None:
    """Five chunks for three steps: a step was counted twice or a chunk is no step."""
    chunks = [ChunkRecord((110 + 5 * n) * MS, tokens) for n, tokens in enumerate((1, 1, 1, 1, 3))]

    assert (
        "5 chunks for 3 verify steps"
        in broken([speculative_record(), later(chunks=chunks)])["chunks_are_steps_or_marked"]
    )


def test_the_first_request_after_a_flush_finds_an_empty_cache() -> None:
    """Nothing was sent before it, so one cached token is one too many."""
    found = broken([speculative_record(cached_tokens=1), later()])

    assert "1 cached tokens where at most 0" in found["cached_tokens_as_predicted"]


def test_output_of_an_earlier_request_may_be_cached() -> None:
    """A second turn that repeats prompt and output of the first may find all of it."""
    facts = replace(FACTS, prompts={0: (5, 6, 7, 8), 1: (5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 30)})
    second = later(cached_tokens=11, sent_tokens=12, prompt_tokens=12)

    assert broken([speculative_record(), second], facts) == {}
    assert "cached_tokens_as_predicted" in broken([speculative_record(), replace(second, cached_tokens=12)], facts)


def test_a_late_client_makes_a_cell_invalid() -> None:
    """Steps take 10 ms, a tenth is 1 ms: 1.1 ms of loop lag is too much, 1.0 ms is not."""
    records = [speculative_record(), later()]
    assert median_step_ms(records) == 10.0
    assert broken(records, replace(FACTS, loop_lag_p99_ms=1.0)) == {}

    checks = check_cell(records, replace(FACTS, loop_lag_p99_ms=1.1))
    assert failure_class(checks) == "client_late"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"error": "gone", "prompt_tokens": 9}, "incomplete"),
        ({"prompt_tokens": 9}, "identity"),
        ({"cached_tokens": 9}, "cache_state"),
    ],
)
def test_the_failure_class_is_that_of_the_first_broken_rule(changes: dict[str, Any], expected: str) -> None:
    """Incomplete comes before identity, identity before the cache."""
    assert failure_class(check_cell([speculative_record(), later(**changes)], FACTS)) == expected


def test_the_detail_counts_what_else_was_broken() -> None:
    """Two requests with wrong prompt counts: the first is told, the other counted."""
    found = broken([speculative_record(prompt_tokens=9), later(prompt_tokens=9)])

    assert found["prompt_tokens_are_the_ids_sent"].endswith("(and 1 more)")
