"""The detector of degenerate output."""

import numpy as np
import pytest

from draftbench.statistics.repetition import is_repetitive, longest_loop, repeated_gram_share


def test_share_of_repeated_grams_by_hand() -> None:
    """1 2 3 4 1 2 3 4 has five 4-grams, of which the last one was there before."""
    assert repeated_gram_share([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)
    assert repeated_gram_share([1, 2, 3]) == 0


@pytest.mark.parametrize(
    ("ids", "loop"),
    [([7] * 9, 9), ([1, 2, 3] * 4 + [9], 12), ([1, 2, 1, 2], 0), (list(range(30)), 0), ([], 0)],
)
def test_longest_loop(ids: list[int], loop: int) -> None:
    """A loop is a period repeated at least three times."""
    assert longest_loop(ids) == loop


def test_text_without_repetition_is_not_marked() -> None:
    """200 random tokens share no 4-gram."""
    assert not is_repetitive(np.random.default_rng(0).integers(0, 50_000, 200).tolist())


def test_a_loop_after_a_good_start_is_marked() -> None:
    """40 fresh tokens, then the same line for 60."""
    assert is_repetitive([*range(40), *([100, 101, 102, 103, 104, 105] * 10)])


def test_short_answers_are_never_marked() -> None:
    """`no no no` is an answer, not a broken arm."""
    assert not is_repetitive([5] * 20)


@pytest.mark.parametrize("seed", range(40))
def test_the_spared_search_never_changes_the_answer(seed: int) -> None:
    """The quick exit equals the plain definition, on texts that are part loop, part fresh."""
    random = np.random.default_rng(seed)
    period, rounds = int(random.integers(1, 33)), int(random.integers(1, 12))
    loop = random.integers(0, 50, period).tolist() * rounds
    fresh = random.integers(0, 50_000, int(random.integers(0, 2 * len(loop) + 24))).tolist()
    ids = [*fresh, *loop]
    plain = len(ids) >= 24 and (repeated_gram_share(ids) > 0.5 or longest_loop(ids) / len(ids) > 0.5)
    assert is_repetitive(ids) == plain
