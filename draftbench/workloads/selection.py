"""Which items of a set fit a target, and which of those form a sample."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jinja2

from draftbench.errors import WorkloadError
from draftbench.workloads.definitions import WorkloadDefinition
from draftbench.workloads.items import Expectation, Message, SourceItem
from draftbench.workloads.schema import SelectedItem, ToolFormat
from draftbench.workloads.templates import TargetTemplate
from draftbench.workloads.tool_text import as_text

PROMPT_TOO_LONG = "prompt longer than max_prompt_tokens"
CONTEXT_EXCEEDED = "prompt and cap exceed max_context"
TOO_FEW_TURNS = "fewer turns than min_turns"
TEMPLATE_REFUSED = "refused by the chat template"


@dataclass(frozen=True)
class RenderedTurn:
    """One request in the form that reaches the target, with its token ids."""

    messages: tuple[Message, ...]
    input_ids: list[int]
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
        requests = item.requests[: self.definition.max_turns]
        histories = [self._messages(request.messages, item) for request in requests]
        try:
            texts = [self._text(messages, item) for messages in histories]
        except jinja2.TemplateError as error:
            return f"{TEMPLATE_REFUSED}: {error}"
        prompts = self.template.token_ids(texts)
        excesses = [self._excess(len(prompt)) for prompt in prompts] + [TOO_FEW_TURNS]
        kept = next(turn for turn, excess in enumerate(excesses) if excess is not None)
        if kept < self.definition.min_turns:
            return str(excesses[kept])
        turns = [
            RenderedTurn(messages, prompt, request.expectation, request.delay_ms)
            for messages, prompt, request in zip(histories, prompts, requests, strict=True)
        ]
        return RenderedItem(item.item_id, self._tools(item), tuple(turns[:kept]), len(item.requests))

    def _text(self, messages: tuple[Message, ...], item: SourceItem) -> str:
        return self.template.render(messages, self._tools(item), self.definition.thinking)

    def _messages(self, messages: tuple[Message, ...], item: SourceItem) -> tuple[Message, ...]:
        if self.tool_format == "bfcl_text":
            return as_text(messages, item.tool_documents)
        return messages

    def _tools(self, item: SourceItem) -> tuple[dict[str, Any], ...]:
        return item.tools if self.tool_format == "native" else ()

    def _excess(self, prompt_tokens: int) -> str | None:
        limit = self.definition.max_prompt_tokens
        if limit is not None and prompt_tokens > limit:
            return PROMPT_TOO_LONG
        if prompt_tokens + self.definition.max_new_tokens > self.definition.max_context:
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
