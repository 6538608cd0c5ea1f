"""Draft trees: what a verify pass checks; pure, and free of any engine.

Node 0 is the root: the last chosen token, not yet run through the target.
Every other node is one draft token; its parent has a smaller index, so each prefix of the node list is a tree.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class DraftTree:
    """Tokens and parents by node; the root's parent is -1."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.tokens, "a tree has a root"
        assert len(self.tokens) == len(self.parents), "one parent a node"
        assert self.parents[0] == -1, "node 0 is the root"
        assert all(0 <= parent < node for node, parent in enumerate(self.parents[1:], 1)), "parents come first"

    @property
    def width(self) -> int:
        """Rows of the verify pass: root and drafts."""
        return len(self.tokens)

    @property
    def budget(self) -> int:
        """Draft nodes, the root not counted."""
        return len(self.tokens) - 1

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root; it is the position offset in the sequence."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @cached_property
    def children(self) -> tuple[dict[int, int], ...]:
        """Child by token, for each node."""
        children: list[dict[int, int]] = [{} for _ in self.tokens]
        for node, parent in enumerate(self.parents[1:], 1):
            children[parent][self.tokens[node]] = node
        return tuple(children)

    @cached_property
    def ancestors(self) -> npt.NDArray[np.bool_]:
        """Which node (row) sees which (column): its ancestors and itself, [width, width]."""
        visible = np.zeros((self.width, self.width), dtype=np.bool_)
        visible[0, 0] = True
        for node, parent in enumerate(self.parents[1:], 1):
            visible[node] = visible[parent]
            visible[node, node] = True
        return visible


def chain(root: int, drafts: Sequence[int]) -> DraftTree:
    """DFlash's own shape: every draft follows the one before."""
    return DraftTree((root, *drafts), tuple(range(-1, len(drafts))))


def best_first_tree(
    root: int, ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]], budget: int
) -> DraftTree:
    """The `budget` most probable prefixes under the product of the drafter's slot distributions.

    `ids` and `logprobs` are [slots][candidates], best candidate first.
    Fewer nodes result where the candidates allow no more.
    Source: DDTree, arXiv 2604.12989: that set is closed under prefixes and maximises the expected accepted length.
    """
    tokens, parents = [root], [-1]
    # An entry: negated score, slot, parent node, rank in the slot. The tuple order breaks ties towards the root.
    heap = [(-logprobs[0][0], 0, 0, 0)] if ids else []
    while heap and len(tokens) <= budget:
        cost, slot, parent, rank = heapq.heappop(heap)
        node = len(tokens)
        tokens.append(ids[slot][rank])
        parents.append(parent)
        if rank + 1 < len(ids[slot]):
            sibling = cost + logprobs[slot][rank] - logprobs[slot][rank + 1]
            heapq.heappush(heap, (sibling, slot, parent, rank + 1))
        if slot + 1 < len(ids):
            heapq.heappush(heap, (cost - logprobs[slot + 1][0], slot + 1, node, 0))
    return DraftTree(tuple(tokens), tuple(parents))


@dataclass(frozen=True)
class Walk:
    """The nodes from the root that the target agreed with, and the token it chose where it left the tree."""

    path: tuple[int, ...]
    bonus: int

    @property
    def accepted(self) -> int:
        """Draft tokens accepted."""
        return len(self.path) - 1


def walk(tree: DraftTree, choose: Callable[[int], int]) -> Walk:
    """Follow the target's own choices down the tree as far as a child carries them.

    `choose(node)` is the target's token after that node, asked once a visited node and in order: an argmax, or one
    independent sample. Either way the tokens are exactly the target's ("sample and match").
    """
    path, node = [0], 0
    while True:
        token = choose(node)
        child = tree.children[node].get(token)
        if child is None:
            return Walk(tuple(path), token)
        path.append(child)
        node = child
