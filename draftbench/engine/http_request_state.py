"""What the front keeps of a running request, and the `/generate` body that each step makes of it.

Pure: no server, no engine, no torch. The field names and meanings are those recorded from SGLang 0.5.17 and 0.5.23.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftbench.engine.http_requests import PromptRequest
from draftbench.engine.http_text import IncrementalDecoder, TextCodec, held_back, trim_at_stop
from draftbench.engine.interface import TokenEvent, TokenLogprob

_WALL_CLOCK_OFFSET = time.time() - time.perf_counter()


def wall_time(performance_time: float) -> float:
    """Unix seconds of a `time.perf_counter()` reading; one offset, so differences are monotonic."""
    return performance_time + _WALL_CLOCK_OFFSET


@dataclass(frozen=True)
class StepOutput:
    """One request's share of an engine step, with the step's `time.perf_counter()` readings.

    `stop_string` is the stop text that the new tokens completed; the engine itself knows stop ids only.
    """

    event: TokenEvent
    stop_string: str | None
    step_started: float
    step_finished: float

    @property
    def matched_stop(self) -> int | str | None:
        """What ended the request, a string or a token id."""
        return self.event.matched_stop if self.stop_string is None else self.stop_string


@dataclass
class RequestClock:
    """When a request passed each station, as `time.perf_counter()` readings; None = not yet."""

    received: float
    dispatched: float | None = None
    forward_entry: float | None = None
    prefill_finished: float | None = None
    first_sent: float | None = None

    def observe_first_step(self, step_started: float, step_finished: float) -> None:
        """Note the step that produced the first token; later steps change nothing.

        A prefill that took several steps is entered here at its last one.
        """
        if self.forward_entry is None:
            self.forward_entry, self.prefill_finished = step_started, step_finished

    def running_fields(self) -> dict[str, Any]:
        """The times that every chunk carries."""
        if self.forward_entry is None or self.prefill_finished is None or self.dispatched is None:
            return {}
        return {
            "forward_entry_time": wall_time(self.forward_entry),
            "prefill_finished_time": wall_time(self.prefill_finished),
            "queue_time": max(0.0, self.forward_entry - self.dispatched),
        }

    def final_fields(self, finished: float, completion_tokens: int) -> dict[str, Any]:
        """The times that only the last chunk carries."""
        fields: dict[str, Any] = {"request_received_ts": wall_time(self.received)}
        if self.prefill_finished is not None:
            fields["first_token_latency"] = self.prefill_finished - self.received
        if self.dispatched is not None:
            fields["api_server_dispatch_finish_ts"] = wall_time(self.dispatched)
        if self.first_sent is not None:
            fields["response_sent_to_client_ts"] = wall_time(self.first_sent)
        fields["request_finished_ts"] = wall_time(finished)
        if self.prefill_finished is not None and completion_tokens > 1 and finished > self.prefill_finished:
            fields["decode_throughput"] = (completion_tokens - 1) / (finished - self.prefill_finished)
        return fields


@dataclass
class RequestState:
    """What the front keeps of one request between chunks; `advance` turns an event into a body."""

    prompt: PromptRequest
    input_ids: Sequence[int]
    codec: TextCodec
    clock: RequestClock
    incremental: bool
    text: str = ""
    output_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._decoder = IncrementalDecoder(self.codec, self.prompt.skip_special_tokens)
        self._shown = 0
        self._frame: dict[str, Any] | None = None
        self._logprobs = LogprobColumns(self.prompt, self.input_ids) if self.prompt.return_logprob else None

    def advance(self, output: StepOutput) -> dict[str, Any]:
        """The body of the chunk that this step makes."""
        event = output.event
        if event.new_ids:
            self.clock.observe_first_step(output.step_started, output.step_finished)
        self.output_ids.extend(event.new_ids)
        self._extend_text(output)
        if self._logprobs is not None:
            self._logprobs.extend(event)
        shown_end = len(self.text) if event.finish is not None else self._safe_length()
        text = self.text[self._shown if self.incremental else 0 : shown_end]
        self._shown = max(self._shown, shown_end)
        ids = event.new_ids if self.incremental else self.output_ids
        return {"text": text, "output_ids": list(ids), "meta_info": self._meta_info(output)}

    def mark_first_sent(self, body: Mapping[str, Any], now: float) -> None:
        """Stamp the first streamed chunk with the time it leaves, as SGLang does."""
        if self.clock.first_sent is None:
            self.clock.first_sent = now
            body["meta_info"]["response_sent_to_client_ts"] = wall_time(now)

    def _extend_text(self, output: StepOutput) -> None:
        """Add the text that the new tokens complete; at the end, all of it, the stop trimmed."""
        event = output.event
        trims_id = isinstance(output.matched_stop, int) and not self.prompt.no_stop_trim
        self.text += self._decoder.push(event.new_ids[:-1] if trims_id else event.new_ids)
        if event.finish is not None:
            self.text += self._decoder.finish()
            if output.stop_string is not None:
                self.text = trim_at_stop(self.text, output.stop_string, self.prompt.no_stop_trim)

    def _safe_length(self) -> int:
        """Characters that no stop string can still take back."""
        if not self.prompt.stop_strings:
            return len(self.text)
        return len(self.text) - held_back(self.text, self.prompt.stop_strings)

    def _meta_info(self, output: StepOutput) -> dict[str, Any]:
        """`meta_info` of one chunk, in SGLang's key order."""
        event = output.event
        if self._frame is None or event.finish is not None:
            self._frame = self._constant_fields(event)
        fields = self._frame.copy()
        fields["finish_reason"] = finish_reason(output)
        fields["completion_tokens"] = event.completion_tokens
        if self._logprobs is not None:
            fields |= self._logprobs.fields()
        if event.finish is not None:
            fields["e2e_latency"] = output.step_finished - self.clock.received
            fields |= speculation_fields(event)
            fields |= self.clock.final_fields(output.step_finished, event.completion_tokens)
        return fields

    def _constant_fields(self, event: TokenEvent) -> dict[str, Any]:
        """The fields that stay as they are from the first chunk on, with places for those that do not."""
        return {
            "id": self.prompt.request_id,
            "finish_reason": None,
            "prompt_tokens": event.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            **self.clock.running_fields(),
            "reasoning_tokens": 0,
            "completion_tokens": 0,
            "cached_tokens": event.cached_tokens,
            "cached_tokens_details": {"device": event.cached_tokens, "host": 0} if event.cached_tokens else None,
            "dp_rank": None,
        }


class LogprobColumns:
    """The log-probabilities of one request so far, as SGLang's lists of [logprob, token id, text]."""

    def __init__(self, prompt: PromptRequest, input_ids: Sequence[int]) -> None:
        self._top = prompt.top_logprobs
        # SGLang's lists for the input begin with the token at `logprob_start_len`, never scored.
        first = [] if prompt.logprob_start < 0 else [input_ids[prompt.logprob_start]]
        self._input_tokens: list[Any] = [(None, token, None) for token in first]
        self._input_top: list[Any] = [None for _ in first]
        self._output_tokens: list[Any] = []
        self._output_top: list[Any] = []

    def extend(self, event: TokenEvent) -> None:
        """Add an event's log-probabilities."""
        for scored in event.input_logprobs or ():
            self._input_tokens.append((scored.logprob, scored.token_id, None))
            self._input_top.append(self._candidates(scored.top2))
        for chosen in event.output_logprobs or ():
            self._output_tokens.append((chosen.logprob, chosen.token_id, None))
            self._output_top.append(self._candidates(chosen.top))

    def fields(self) -> dict[str, Any]:
        """The `meta_info` fields."""
        fields: dict[str, Any] = {
            "input_token_logprobs": list(self._input_tokens),
            "output_token_logprobs": list(self._output_tokens),
            "output_token_logprobs_length": len(self._output_tokens),
        }
        if self._top > 0:
            fields["input_top_logprobs"] = list(self._input_top)
            fields["output_top_logprobs"] = list(self._output_top)
        return fields

    def _candidates(self, top: Sequence[TokenLogprob]) -> list[Any]:
        """The best candidates of one position."""
        return [(logprob, token, None) for logprob, token in top[: self._top]]


def finish_reason(output: StepOutput) -> dict[str, Any] | None:
    """Why the request ended, None while it runs."""
    match output.event.finish:
        case None:
            return None
        case "length":
            return {"type": "length", "length": output.event.completion_tokens}
        case "stop":
            return {"type": "stop", "matched": output.matched_stop}
        case "abort":
            return {"type": "abort", "message": "Aborted"}


def speculation_fields(event: TokenEvent) -> dict[str, Any]:
    """The acceptance record of a finished request; nothing where nothing was verified.

    `spec_accept_length` counts the prefill's token too, `spec_num_proposed_drafts` is steps times budget.
    """
    if event.verify_steps == 0 or event.proposed_drafts == 0:
        return {}
    histogram = trimmed(event.accept_histogram)
    return {
        "spec_accept_rate": event.accepted_drafts / event.proposed_drafts,
        "spec_accept_length": event.completion_tokens / event.verify_steps,
        "spec_num_correct_drafts": event.accepted_drafts,
        "spec_num_proposed_drafts": event.proposed_drafts,
        "spec_verify_ct": event.verify_steps,
        "spec_accepted_drafts": event.accepted_drafts,
        "spec_proposed_drafts": event.proposed_drafts,
        "spec_correct_drafts_histogram": histogram,
        "spec_accept_histogram": histogram,
    }


def trimmed(histogram: Sequence[int]) -> list[int]:
    """A histogram without its empty upper bins."""
    bins = list(histogram)
    while bins and bins[-1] == 0:
        bins.pop()
    return bins
