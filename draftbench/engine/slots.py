"""Key and value caches: one slot a running request, kept after its end so that later prompts can reuse their prefix."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from draftbench.engine.checkpoint import ModelShape


@dataclass(frozen=True)
class CacheShape:
    """Sizes of one model's cache for one slot: [layers, keys then values by KV head, tokens, head_dim]."""

    layers: int
    kv_heads: int
    head_dim: int
    capacity: int

    @classmethod
    def of(cls, model: ModelShape, capacity: int) -> "CacheShape":
        """The cache shape of `model` for `capacity` tokens."""
        return cls(model.layers, model.kv_heads, model.head_dim, capacity)

    def allocate(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Uninitialised: pages of a CPU cache cost memory only once they are written."""
        return torch.empty(self.layers, 2 * self.kv_heads, self.capacity, self.head_dim, dtype=dtype, device=device)


@dataclass(eq=False)
class Slot:
    """Cached keys and values of one token sequence.

    `tokens` are the committed ids; what lies in the caches beyond their number is scratch.
    The drafter's cache holds its context keys and values of exactly the same tokens.
    """

    target: torch.Tensor
    drafter: torch.Tensor | None
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    last_used: int = 0

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self.tokens)

    def commit(self, ids: Sequence[int], rows: Sequence[int]) -> None:
        """Keep `ids`, whose keys and values the target wrote at the offsets `rows` behind the committed ones.

        `rows` rises, so that gathering to the front overwrites nothing still needed.
        """
        start, wanted = self.length, list(rows)
        if wanted != list(range(len(wanted))):
            source = torch.tensor(wanted, device=self.target.device) + start
            self.target[:, :, start : start + len(wanted)] = self.target.index_select(2, source)
        self.tokens.extend(ids)

    def take_prefix(self, donor: "Slot", length: int) -> None:
        """Hold the first `length` tokens of `donor`, copied unless it is this very slot."""
        if donor is not self:
            self.target[:, :, :length] = donor.target[:, :, :length]
            if self.drafter is not None and donor.drafter is not None:
                self.drafter[:, :, :length] = donor.drafter[:, :, :length]
        self.tokens = donor.tokens[:length]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return min(len(first), len(second))


class SlotPool:
    """Slots for running requests and as many more that keep finished sequences, evicted least recently used first."""

    def __init__(
        self,
        running: int,
        target: CacheShape,
        drafter: CacheShape | None,
        dtype: torch.dtype,
        device: torch.device,
        reuse: bool,
    ) -> None:
        self._limit = 2 * running if reuse else running
        self._target, self._drafter, self._dtype, self._device, self._reuse = target, drafter, dtype, device, reuse
        self._slots: list[Slot] = []
        self._clock = 0

    def acquire(self, prompt: Sequence[int], reusable: int) -> Slot:
        """A free slot that already holds the longest known prefix of `prompt`, at most `reusable` tokens of it."""
        donor, shared = self._longest_prefix(prompt, reusable) if self._reuse else (None, 0)
        slot = self._destination(donor, shared)
        if donor is None:
            slot.tokens = []
        else:
            slot.take_prefix(donor, shared)
        slot.busy = True
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; its tokens stay for reuse."""
        self._clock += 1
        slot.busy, slot.last_used = False, self._clock

    def flush(self) -> None:
        """Forget every kept sequence."""
        assert not any(slot.busy for slot in self._slots), "a running request holds a slot"
        for slot in self._slots:
            slot.tokens, slot.last_used = [], 0

    def _longest_prefix(self, prompt: Sequence[int], reusable: int) -> tuple[Slot | None, int]:
        best: tuple[Slot | None, int] = (None, 0)
        for slot in self._slots:
            shared = min(common_prefix(slot.tokens, prompt), reusable)
            if shared > best[1]:
                best = (slot, shared)
        return best

    def _destination(self, donor: Slot | None, shared: int) -> Slot:
        """The donor itself where most of it is wanted; else an unused slot, a new one, or the least recently used."""
        if donor is not None and not donor.busy and 2 * shared >= donor.length:
            return donor
        free = [slot for slot in self._slots if not slot.busy]
        unused = [slot for slot in free if not slot.tokens]
        if unused:
            return unused[0]
        if len(self._slots) < self._limit:
            return self._grow()
        others = [slot for slot in free if slot is not donor] or free
        return min(others, key=lambda slot: slot.last_used)

    def _grow(self) -> Slot:
        drafter = None if self._drafter is None else self._drafter.allocate(self._dtype, self._device)
        self._slots.append(Slot(self._target.allocate(self._dtype, self._device), drafter))
        return self._slots[-1]
