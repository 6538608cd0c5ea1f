"""Conversations onto lanes, closed loop: C conversations at once, turns in order, a lane refilled when it is free."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from draftbench.load.clock import NS_PER_MS


class PlannedTurn(Protocol):
    """One request of a conversation; the delay passes after the turn before it is done."""

    @property
    def turn(self) -> int:
        """Number within the conversation, from 0."""
        ...

    @property
    def input_ids(self) -> Sequence[int]:
        """The prompt."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Cap on output tokens."""
        ...

    @property
    def delay_ms(self) -> float:
        """Milliseconds that the user or a tool takes before this turn."""
        ...


class PlannedConversation(Protocol):
    """A workload item and its requests, in order."""

    @property
    def session_id(self) -> str:
        """The conversation's name."""
        ...

    @property
    def item_id(self) -> str:
        """The workload item that it came from."""
        ...

    @property
    def turns(self) -> Sequence[PlannedTurn]:
        """Its requests, at least one."""
        ...


@dataclass(frozen=True)
class Dispatch:
    """One request that a lane is to send at `due_ns`; `request` is its number in planned order."""

    request: int
    lane: int
    conversation: PlannedConversation
    turn: PlannedTurn
    due_ns: int


class Schedule:
    """Which lane sends what, and when; pure: times come in, dispatches go out.

    The first C conversations take lanes 0 to C-1; afterwards the next conversation goes to the lane that is free first.
    """

    def __init__(self, conversations: Sequence[PlannedConversation], concurrency: int) -> None:
        assert concurrency >= 1, "a cell has at least one lane"
        assert all(conversation.turns for conversation in conversations), "a conversation has at least one turn"
        self._conversations = conversations
        self._first_request = _running_starts([len(conversation.turns) for conversation in conversations])
        self._next_conversation = 0
        self._current: dict[int, tuple[int, int]] = {}  # lane -> (conversation, turn)
        self.lanes = min(concurrency, len(conversations))

    @property
    def planned_requests(self) -> int:
        """Requests of the whole cell."""
        return sum(len(conversation.turns) for conversation in self._conversations)

    def next(self, lane: int, now_ns: int) -> Dispatch | None:
        """What a free lane sends next; None = the lane has run out. `now_ns` is when its last request was done."""
        place = self._following_turn(lane) or self._following_conversation()
        if place is None:
            self._current.pop(lane, None)
            return None
        self._current[lane] = place
        return self._dispatch(lane, *place, now_ns)

    def _following_turn(self, lane: int) -> tuple[int, int] | None:
        if lane not in self._current:
            return None
        conversation, turn = self._current[lane]
        following = turn + 1
        return (conversation, following) if following < len(self._conversations[conversation].turns) else None

    def _following_conversation(self) -> tuple[int, int] | None:
        if self._next_conversation == len(self._conversations):
            return None
        self._next_conversation += 1
        return (self._next_conversation - 1, 0)

    def _dispatch(self, lane: int, index: int, turn_index: int, now_ns: int) -> Dispatch:
        conversation = self._conversations[index]
        turn = conversation.turns[turn_index]
        return Dispatch(
            request=self._first_request[index] + turn_index,
            lane=lane,
            conversation=conversation,
            turn=turn,
            due_ns=now_ns + round(turn.delay_ms * NS_PER_MS),
        )


def _running_starts(lengths: Sequence[int]) -> list[int]:
    starts, total = [], 0
    for length in lengths:
        starts.append(total)
        total += length
    return starts
