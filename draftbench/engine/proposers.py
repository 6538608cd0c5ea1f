"""How DFlash and DDTree turn one drafter pass into a tree."""

from collections.abc import Sequence

import torch

from draftbench.engine.attention import Segment
from draftbench.engine.draft_tree import DraftTree, best_first_tree, chain
from draftbench.engine.drafter_model import DrafterModel
from draftbench.engine.running import RunningRequest
from draftbench.engine.target_model import TargetModel


class BlockDrafter:
    """One drafter pass over the blocks [pending token, mask, ...] of all running requests."""

    def __init__(self, target: TargetModel, drafter: DrafterModel) -> None:
        self._target, self._drafter = target, drafter
        self.slots = drafter.config.block_size - 1
        self._masks = [drafter.config.mask_token_id] * self.slots

    def logits(self, batch: Sequence[RunningRequest]) -> torch.Tensor:
        """The drafter's distributions [requests * slots, draft vocabulary]; the anchor's own output is not used."""
        block, device = self.slots + 1, self._target.device
        ids = [token for running in batch for token in (running.pending, *self._masks)]
        starts = [running.slot.length for running in batch]
        positions = [start + offset for start in starts for offset in range(block)]
        hidden = self._drafter.draft_block(
            self._target.embed(torch.tensor(ids, device=device)),
            torch.tensor(positions, device=device),
            [self._segment(running, block) for running in batch],
        )
        drafted = hidden.view(len(batch), block, -1)[:, 1:].flatten(0, 1)
        return self._target.draft_logits(drafted)

    @staticmethod
    def _segment(running: RunningRequest, block: int) -> Segment:
        assert running.slot.drafter is not None, "a speculative slot has a drafter cache"
        return Segment(running.slot.drafter, running.slot.length, block, None)


class ChainProposer:
    """DFlash: the best token of each slot, one after the other."""

    def __init__(self, drafter: BlockDrafter, budget: int) -> None:
        assert 1 <= budget <= drafter.slots, "a chain is no longer than the block"
        self._drafter, self._budget = drafter, budget

    def propose(self, batch: Sequence[RunningRequest]) -> list[DraftTree]:
        """One chain a request."""
        best = self._drafter.logits(batch).max(-1).indices.view(len(batch), -1).tolist()
        return [chain(running.pending, drafts[: self._budget]) for running, drafts in zip(batch, best, strict=True)]


class TreeProposer:
    """DDTree: the most probable prefixes of the slots' product distribution."""

    def __init__(self, drafter: BlockDrafter, budget: int, top_k: int) -> None:
        self._drafter, self._budget, self._top_k = drafter, budget, top_k

    def propose(self, batch: Sequence[RunningRequest]) -> list[DraftTree]:
        """One tree of at most `budget` drafts a request."""
        logits = self._drafter.logits(batch)
        best = logits.topk(min(self._top_k, logits.shape[-1]), dim=-1)
        logprobs = best.values.float() - logits.float().logsumexp(-1, keepdim=True)
        shape = (len(batch), self._drafter.slots, -1)
        found = zip(batch, best.indices.view(shape).tolist(), logprobs.view(shape).tolist(), strict=True)
        return [best_first_tree(running.pending, ids, values, self._budget) for running, ids, values in found]
