"""Which items of a set fit a target, and which of those form a sample."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jinja2

from draftbench.errors import WorkloadError
from draftbench.workloads.definitions import WorkloadDefinition
from draftbench.workloads.items import Expectation, Message, SourceItem, SourceRequest
from draftbench.workloads.schema import SelectedItem, ToolFormat
from draftbench.workloads.templates import TargetTemplate
from draftbench.workloads.tool_text import as_text

PROMPT_TOO_LONG = "prompt longer than max_prompt_tokens"
CONTEXT_EXCEEDED = "prompt and cap exceed max_context"
TOO_FEW_TURNS = "fewer turns than min_turns"
TEMPLATE_REFUSED = "refused by the chat template"


@dataclass(frozen=True)
class RenderedTurn:
    """One request in the form that reaches the target, and the length of its prompt."""

    messages: tuple[Message, ...]
    prompt_tokens: int
    max_new_tokens: int
    expectation: Expectation | None
    delay_ms: int


@dataclass(frozen=True)
class RenderedItem:
    """A conversation cut to what the definition allows; `turns_available` counts what the source has."""

    item_id: str
    tools: tuple[dict[str, Any], ...]
    turns: tuple[RenderedTurn, ...]
    turns_available: int


@dataclass(frozen=True)
class FittingItems:
    """Items that may get a rank, and the ids of those that may not, by reason."""

    items: tuple[RenderedItem, ...]
    dropped: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Renderer:
    """Turns a source's requests into the target's token ids."""

    template: TargetTemplate
    tool_format: ToolFormat
    definition: WorkloadDefinition

    def render(self, item: SourceItem) -> RenderedItem | str:
        """Return the leading turns that fit, or the reason why the item is dropped."""
        if self.definition.tools == "called":
            item = item.with_called_tools()
        turns: list[RenderedTurn] = []
        problem = TOO_FEW_TURNS
        for request in item.requests[: self.definition.max_turns]:
            try:
                turn = self._turn(request, item)
            except jinja2.TemplateError as error:
                return f"{TEMPLATE_REFUSED}: {error}"
            excess = self._excess(turn)
            if excess is not None:
                problem = excess
                break
            turns.append(turn)
        if len(turns) < self.definition.min_turns:
            return problem
        return RenderedItem(item.item_id, self._tools(item), tuple(turns), len(item.requests))

    def input_ids(self, item: RenderedItem) -> list[list[int]]:
        """Return the token ids of each turn."""
        return self.template.token_ids([self._text(turn.messages, item.tools) for turn in item.turns])

    def _turn(self, request: SourceRequest, item: SourceItem) -> RenderedTurn:
        messages = self._messages(request.messages, item)
        prompt_tokens = self.template.count_tokens(self._text(messages, self._tools(item)))
        cap = min(self.definition.max_new_tokens, request.cap or self.definition.max_new_tokens)
        return RenderedTurn(messages, prompt_tokens, cap, request.expectation, request.delay_ms)

    def _text(self, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...]) -> str:
        return self.template.render(messages, tools, self.definition.thinking)

    def _messages(self, messages: tuple[Message, ...], item: SourceItem) -> tuple[Message, ...]:
        if self.tool_format == "bfcl_text":
            return as_text(messages, item.tool_documents)
        return messages

    def _tools(self, item: SourceItem) -> tuple[dict[str, Any], ...]:
        return item.tools if self.tool_format == "native" else ()

    def _excess(self, turn: RenderedTurn) -> str | None:
        limit = self.definition.max_prompt_tokens
        if limit is not None and turn.prompt_tokens > limit:
            return PROMPT_TOO_LONG
        if turn.prompt_tokens + turn.max_new_tokens > self.definition.max_context:
            return CONTEXT_EXCEEDED
        return None


def fitting_items(items: list[SourceItem], render: Callable[[SourceItem], RenderedItem | str]) -> FittingItems:
    """Render every item and set aside those that do not fit."""
    fitting: list[RenderedItem] = []
    dropped: dict[str, list[str]] = {}
    for item in items:
        outcome = render(item)
        if isinstance(outcome, RenderedItem):
            fitting.append(outcome)
        else:
            dropped.setdefault(outcome, []).append(item.item_id)
    return FittingItems(tuple(fitting), {reason: tuple(ids) for reason, ids in sorted(dropped.items())})


def rank_key(seed: int, item_id: str) -> str:
    """Return the hash that orders a set: independent of Python's and NumPy's generators, stable for ever."""
    return hashlib.sha256(f"{seed}:{item_id}".encode()).hexdigest()


def select(fitting: FittingItems, definition: WorkloadDefinition) -> list[RenderedItem]:
    """Return the items of the definition's ranks, in rank order.

    Raises WorkloadError where fewer items fit than the ranks ask for.
    """
    start, stop = definition.ranks
    if stop > len(fitting.items):
        reasons = "; ".join(f"{len(ids)} dropped: {reason}" for reason, ids in fitting.dropped.items())
        raise WorkloadError(
            f"workload {definition.set}: ranks {start} to {stop} asked for, {len(fitting.items)} items fit"
            f"{f' ({reasons})' if reasons else ''}; lower ranks or raise the limits"
        )
    ordered = sorted(fitting.items, key=lambda item: rank_key(definition.seed, item.item_id))
    return ordered[start:stop]


def selection_table(selected: list[RenderedItem], first_rank: int) -> tuple[SelectedItem, ...]:
    """Return rank, id and turns of the sample."""
    return tuple(
        SelectedItem(rank=rank, item_id=item.item_id, turns=len(item.turns), turns_available=item.turns_available)
        for rank, item in enumerate(selected, start=first_rank)
    )
