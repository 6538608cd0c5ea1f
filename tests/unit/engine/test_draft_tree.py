"""Draft trees: shapes, the best-first builder against brute force, and the walk."""

import itertools
import math
import random

import numpy as np
import pytest

from draftbench.engine.draft_tree import DraftTree, best_first_tree, chain, walk


def _paths(tree: DraftTree) -> set[tuple[int, ...]]:
    """Every node as the tokens from below the root to it."""
    found: list[tuple[int, ...]] = [()]
    for node in range(1, tree.width):
        found.append((*found[tree.parents[node]], tree.tokens[node]))
    return set(found[1:])


def _distributions(slots: int, candidates: int, seed: int) -> tuple[list[list[int]], list[list[float]]]:
    drawn = random.Random(seed)
    ids, logprobs = [], []
    for _ in range(slots):
        weights = sorted((drawn.expovariate(1.0) ** 2 for _ in range(candidates + 3)), reverse=True)
        total = sum(weights)
        ids.append(drawn.sample(range(100), candidates))
        logprobs.append([math.log(weight / total) for weight in weights[:candidates]])
    return ids, logprobs


@pytest.mark.parametrize("budget", [1, 3, 7, 15, 31])
@pytest.mark.parametrize("seed", range(4))
def test_tree_holds_the_most_probable_prefixes(budget: int, seed: int) -> None:
    """Brute force over all prefixes of all lengths finds the same set (scores have no ties here)."""
    slots, candidates = 4, 4
    ids, logprobs = _distributions(slots, candidates, seed)
    scored = []
    for length in range(1, slots + 1):
        for ranks in itertools.product(range(candidates), repeat=length):
            score = sum(logprobs[slot][rank] for slot, rank in enumerate(ranks))
            scored.append((score, tuple(ids[slot][rank] for slot, rank in enumerate(ranks))))
    best = {path for _, path in sorted(scored, reverse=True)[:budget]}
    assert _paths(best_first_tree(7, ids, logprobs, budget)) == best


def test_tree_is_smaller_where_candidates_run_out() -> None:
    """Two slots of two candidates allow 2 + 4 prefixes, whatever the budget."""
    tree = best_first_tree(0, [[1, 2], [3, 4]], [[-0.1, -3.0], [-0.2, -2.0]], budget=50)
    assert _paths(tree) == {(1,), (2,), (1, 3), (1, 4), (2, 3), (2, 4)}
    assert tree.budget == 6


def test_one_candidate_a_slot_gives_dflash_chain() -> None:
    """With top-k 1 and budget block - 1 the tree is the chain, node by node."""
    assert best_first_tree(9, [[4], [5], [6]], [[-1.0], [-2.0], [-0.5]], budget=3) == chain(9, [4, 5, 6])


def test_depths_and_ancestors_of_a_known_tree() -> None:
    """Root with children 1 and 2; 3 below 1; 4 below 2."""
    tree = DraftTree((10, 11, 12, 13, 14), (-1, 0, 0, 1, 2))
    assert tree.depths == (0, 1, 1, 2, 2)
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
    np.testing.assert_array_equal(tree.ancestors, np.array(expected, dtype=bool))


def test_walk_follows_choices_and_stops_at_the_first_token_without_a_child() -> None:
    """Choices 12, 14, 99 take the path root, 2, 4 and leave 99 as the bonus token; node 1 and 3 are never asked."""
    tree = DraftTree((10, 11, 12, 13, 14), (-1, 0, 0, 1, 2))
    asked = []

    def choose(node: int) -> int:
        asked.append(node)
        return {0: 12, 2: 14, 4: 99}[node]

    taken = walk(tree, choose)
    assert (taken.path, taken.bonus, taken.accepted) == ((0, 2, 4), 99, 2)
    assert asked == [0, 2, 4]


def test_walk_that_agrees_with_nothing_keeps_the_root_alone() -> None:
    """A first choice without a child accepts no draft."""
    assert walk(chain(1, [2, 3]), lambda _: 8).path == (0,)


@pytest.mark.parametrize(("tokens", "parents"), [((), ()), ((1, 2), (-1,)), ((1, 2), (0, 0)), ((1, 2, 3), (-1, 2, 0))])
def test_malformed_trees_are_refused(tokens: tuple[int, ...], parents: tuple[int, ...]) -> None:
    """Empty, uneven, rootless and parent-after-child trees violate the invariant."""
    with pytest.raises(AssertionError):
        DraftTree(tokens, parents)
