"""The two decode loops' steps: plain autoregressive, and draft -> verify -> accept -> commit.

Both take all running requests at once: their rows share every linear layer, and each attends over its own cache.
Neither measures time.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from draftbench.engine.attention import Segment, additive_mask
from draftbench.engine.draft_tree import DraftTree, Walk, walk
from draftbench.engine.drafter_model import DrafterModel
from draftbench.engine.logprobs import score_output
from draftbench.engine.running import Advance, RunningRequest
from draftbench.engine.target_model import TargetModel


class Decoder(Protocol):
    """One decode step for all running requests."""

    def step(self, batch: Sequence[RunningRequest]) -> list[Advance]:
        """What each request of `batch` got, in order."""


class Proposer(Protocol):
    """A way to draft."""

    def propose(self, batch: Sequence[RunningRequest]) -> list[DraftTree]:
        """One tree a request, rooted at its pending token."""


class AutoregressiveDecoder:
    """One token a request and step; the baseline, and the oracle of the speculative loop."""

    def __init__(self, target: TargetModel) -> None:
        self._target = target

    def step(self, batch: Sequence[RunningRequest]) -> list[Advance]:
        """Run the pending tokens and choose the next ones."""
        device = self._target.device
        starts = [running.slot.length for running in batch]
        hidden, _ = self._target.forward(
            torch.tensor([running.pending for running in batch], device=device),
            torch.tensor(starts, device=device),
            [Segment(running.slot.target, start, 1, None) for running, start in zip(batch, starts, strict=True)],
        )
        logits = self._target.logits(hidden)
        for running in batch:
            running.slot.commit((running.pending,), (0,))
        return [self._choose(running, row) for running, row in zip(batch, logits, strict=True)]

    @staticmethod
    def _choose(running: RunningRequest, logits: torch.Tensor) -> Advance:
        token, top = running.sampler.choose(logits), running.request.return_top_logprobs
        return Advance((token,), output_logprobs=(score_output(logits, token, top),) if top else None)


class SpeculativeDecoder:
    """DFlash and DDTree: the loop is one, the proposer differs."""

    def __init__(self, target: TargetModel, drafter: DrafterModel, proposer: Proposer) -> None:
        self._target, self._drafter, self._proposer = target, drafter, proposer

    def step(self, batch: Sequence[RunningRequest]) -> list[Advance]:
        """Draft a tree a request, verify all trees in one pass, commit what the target agrees with."""
        trees = self._proposer.propose(batch)
        hidden, features = self._verify(batch, trees)
        logits = self._target.logits(hidden)
        firsts = _first_rows(trees)
        walks = _walk_all(batch, trees, firsts, logits)
        assert features is not None, "a speculative target returns features"
        self._commit(batch, trees, walks, firsts, features)
        return [
            Advance(_chosen(tree, taken), accepted=taken.accepted, proposed=tree.budget)
            for tree, taken in zip(trees, walks, strict=True)
        ]

    def _verify(
        self, batch: Sequence[RunningRequest], trees: Sequence[DraftTree]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        tokens: list[int] = []
        positions: list[int] = []
        for running, tree in zip(batch, trees, strict=True):
            tokens += tree.tokens
            positions += [running.slot.length + depth for depth in tree.depths]
        device = self._target.device
        segments = [self._segment(running, tree) for running, tree in zip(batch, trees, strict=True)]
        return self._target.forward(
            torch.tensor(tokens, device=device), torch.tensor(positions, device=device), segments
        )

    def _segment(self, running: RunningRequest, tree: DraftTree) -> Segment:
        start, group = running.slot.length, self._target.config.shape.group
        mask = additive_mask(tree.ancestors, start, group, self._target.dtype, self._target.device)
        return Segment(running.slot.target, start, tree.width, mask)

    def _commit(
        self,
        batch: Sequence[RunningRequest],
        trees: Sequence[DraftTree],
        walks: Sequence[Walk],
        firsts: Sequence[int],
        features: torch.Tensor,
    ) -> None:
        """Keep the accepted paths in both caches; the bonus token is run in the next step."""
        rows: list[int] = []
        places: list[tuple[torch.Tensor, int, int]] = []
        for running, tree, taken, first in zip(batch, trees, walks, firsts, strict=True):
            slot = running.slot
            assert slot.drafter is not None, "a speculative slot has a drafter cache"
            places.append((slot.drafter, slot.length, len(taken.path)))
            rows += [first + node for node in taken.path]
            slot.commit([tree.tokens[node] for node in taken.path], taken.path)
        self._drafter.extend_context(features[torch.tensor(rows, device=features.device)], places)


def _first_rows(trees: Sequence[DraftTree]) -> list[int]:
    """Where each tree's rows begin in the batch."""
    firsts = [0]
    for tree in trees[:-1]:
        firsts.append(firsts[-1] + tree.width)
    return firsts


def _walk_all(
    batch: Sequence[RunningRequest], trees: Sequence[DraftTree], firsts: Sequence[int], logits: torch.Tensor
) -> list[Walk]:
    """Greedy requests share one argmax over all rows; sampled ones draw at the nodes they visit."""
    greedy = logits.max(-1).indices.tolist() if any(running.sampler.greedy for running in batch) else []
    return [
        walk(tree, _chooser(running, first, greedy, logits))
        for running, tree, first in zip(batch, trees, firsts, strict=True)
    ]


def _chooser(running: RunningRequest, first: int, greedy: list[int], logits: torch.Tensor) -> Callable[[int], int]:
    if running.sampler.greedy:
        return lambda node: greedy[first + node]
    return lambda node: running.sampler.choose(logits[first + node])


def _chosen(tree: DraftTree, taken: Walk) -> tuple[int, ...]:
    """The tokens after the root that the target chose: accepted drafts, then the bonus token."""
    return (*(tree.tokens[node] for node in taken.path[1:]), taken.bonus)
