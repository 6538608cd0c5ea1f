"""Sentences say what the verdict says, with its interval, and never more."""

from pathlib import Path
from typing import Any

import pytest

from draftbench import sentences
from draftbench.figures.study import Study, read_study
from draftbench.layout import Layout
from tests.unit.figures.tables_by_hand import FULL_STUDY, HandStudy, write_hand_study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """The small study with two blocks."""
    return read_study(write_hand_study(tmp_path))


def row_of(**changes: Any) -> dict[str, Any]:
    """A comparison of the primary arm with AR on code: 1.62, adjusted interval 1.48 to 1.77."""
    row = {
        "arm": "ddtree-b15", "method": "DDTREE", "draft_budget": 15, "verify_width": 16, "tensor_parallelism": 1,
        "workload": "code", "concurrency": 1, "baseline": "ar", "measure": "decode_time_per_token", "estimate": 1.62,
        "low": 1.5, "high": 1.75, "low_adjusted": 1.48, "high_adjusted": 1.77, "low_these_prompts": 1.6,
        "high_these_prompts": 1.64, "low_adjusted_these_prompts": 1.59, "high_adjusted_these_prompts": 1.65,
        "verdict": "faster", "verdict_these_prompts": "faster", "reason": None, "blocks": 2, "conversations": 4,
    }  # fmt: skip
    return {**row, **changes}


def test_a_faster_arm_in_words(study: Study) -> None:
    """Effect, the verdict's own interval, n and the verdict stand in one sentence."""
    assert sentences.comparison(study, row_of()) == (
        "On code at concurrency 1, DDTree 15 decodes 1.62 times as fast as AR "
        "(95 % interval 1.48 to 1.77, 2 blocks, 4 conversations): faster."
    )


def test_throughput_is_called_throughput(study: Study) -> None:
    """Above concurrency 1 the measure is tokens per second, and the sentence says so."""
    text = sentences.comparison(study, row_of(measure="throughput", concurrency=4))
    assert text.startswith("On code at concurrency 4, DDTree 15 gives 1.62 times the throughput of AR (95 %")


def test_undecided_everywhere_is_said_plainly(study: Study) -> None:
    """An inconclusive verdict on both scopes claims neither direction."""
    row = row_of(estimate=1.04, low_adjusted=0.9, high_adjusted=1.2, verdict="inconclusive",
                 verdict_these_prompts="inconclusive")  # fmt: skip
    assert sentences.comparison(study, row) == (
        "Whether DDTree 15 is faster or slower than AR on code at concurrency 1 is not decided: "
        "the estimate is 1.04 times (95 % interval 0.90 to 1.20, 2 blocks, 4 conversations)."
    )


def test_decided_for_the_measured_prompts_only(study: Study) -> None:
    """What holds for the measured prompts is not passed off as holding for prompts like them."""
    row = row_of(low_adjusted=0.66, high_adjusted=4.85, verdict="inconclusive")
    assert sentences.comparison(study, row) == (
        "On code at concurrency 1, DDTree 15 decodes 1.62 times as fast as AR for the prompts measured (95 % interval "
        "1.59 to 1.65, 2 blocks, 4 conversations): faster; for prompts like these it is not decided (0.66 to 4.85)."
    )


def test_no_sentence_claims_more_than_its_interval(study: Study) -> None:
    """A verdict `faster` whose interval includes 1 is not believed, nor `slower` whose interval does."""
    assert sentences.claim_of(row_of(low_adjusted=0.99)) == "inconclusive"
    assert sentences.claim_of(row_of(verdict="slower")) == "inconclusive"
    assert sentences.claim_of(row_of(verdict="slower", low_adjusted=0.7, high_adjusted=0.8)) == "slower"
    assert sentences.claim_of(row_of(low=None, high=None, low_adjusted=None, high_adjusted=None)) == "not_tested"


def test_a_missing_result_gives_its_reason(study: Study) -> None:
    """No estimate: the sentence says so and why."""
    text = sentences.comparison(study, row_of(estimate=None, reason="no turn was decoded by both."))
    assert text == (
        "There is no result for DDTree 15 against AR on code at concurrency 1: no turn was decoded by both."
    )


def test_the_answer_groups_conditions_by_verdict(study: Study) -> None:
    """One sentence with every condition of the primary arm; 1.65 times on code at 1 is DDTree 15's truth here."""
    text = sentences.answer(study)
    assert text.startswith("On this machine DDTree 15 is faster than AR on agentic (1.52 times, 1.39 to 1.66), ")
    assert "on code at concurrency 4 (1.48 times, 1.35 to 1.61)" in text
    assert text.endswith("(95 % intervals, 2 blocks).")
    assert text.count(". ") == 0


def test_one_block_answers_without_a_test(tmp_path: Path) -> None:
    """With a single block nothing is called faster."""
    study = read_study(write_hand_study(tmp_path, HandStudy(blocks=1)))
    text = sentences.answer(study)
    assert "was measured against AR without a test on agentic (1.52 times as fast)" in text
    assert text.endswith("(no intervals, 1 block).")
    assert "faster" not in text
    words = " ".join(sentence for entry in sentences.conclusions(study) for sentence in entry.sentences)
    assert "so there are no intervals and no verdicts" in words
    assert ": faster" not in words


def test_a_primary_arm_that_failed_gives_no_answer_and_the_reason(tmp_path: Path) -> None:
    """The failure's class and message stand in the answer."""
    study = read_study(write_hand_study(tmp_path, HandStudy(lost=("ddtree-b15",))))
    assert sentences.answer(study) == (
        "No answer: DDTree 15 has no valid comparison with AR "
        "(out_of_memory at launch: CUDA_ERROR: 100% of <memory> & no $wap)."
    )


def test_a_refused_primary_arm_gives_the_plans_reason(tmp_path: Path) -> None:
    """What the plan refused is not called a failure."""
    refusal = {"arm": "ddtree-b15", "tensor_parallelism": 1, "reason": "needs 90 GiB of 80 GiB."}
    study = read_study(write_hand_study(tmp_path, HandStudy(lost=("ddtree-b15",), refusals=(refusal,))))
    assert sentences.answer(study).endswith("has no valid comparison with AR (needs 90 GiB of 80 GiB).")


def test_many_conditions_are_summed_up(tmp_path: Path) -> None:
    """Forty conditions do not become a title of forty clauses."""
    study = read_study(write_hand_study(tmp_path, FULL_STUDY))
    text = sentences.answer(study)
    assert len(text) < 600
    assert "is faster than AR in " in text
    assert all(len(sentence) < 900 for entry in sentences.conclusions(study) for sentence in entry.sentences)


def test_every_sentence_is_one(tmp_path: Path) -> None:
    """Sentences never begin in lower case, end with one full stop and hold no placeholder."""
    for number, kind in enumerate((HandStudy(), HandStudy(blocks=1), HandStudy(lost=("dflash",)), FULL_STUDY)):
        study = read_study(write_hand_study(tmp_path / str(number), kind))
        found = [sentence for entry in sentences.conclusions(study) for sentence in entry.sentences]
        assert found
        for sentence in [*found, sentences.answer(study)]:
            assert not sentence[0].islower()
            assert sentence.endswith(".")
            assert not sentence.endswith("..")
            assert "None" not in sentence
            assert "nan" not in sentence.split()
            assert "  " not in sentence


def test_an_empty_folder_gives_an_honest_answer(tmp_path: Path) -> None:
    """Without plan and tables there is no answer, said so."""
    assert sentences.answer(read_study(Layout(tmp_path))) == "No answer: the plan names no primary arm."


def test_lists_read_as_english() -> None:
    """Comma and `and`."""
    assert sentences.listed(["a"]) == "a"
    assert sentences.listed(["a", "b", "c"]) == "a, b and c"
