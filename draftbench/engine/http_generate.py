"""One `/generate` call between its HTTP handler and the engine's thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from draftbench.engine.http_engine_thread import EngineThread
from draftbench.engine.http_request_state import RequestClock, RequestState, StepOutput
from draftbench.engine.http_requests import (
    GenerateBody,
    PromptRequest,
    check_ids,
    check_length,
    check_logprobs,
)
from draftbench.engine.http_sampling import BadRequestError
from draftbench.engine.http_text import StopStrings, TextCodec
from draftbench.engine.interface import Method, RequestRefusedError
from draftbench.engine.metrics_text import ServerMetrics


@dataclass(frozen=True)
class ServedModel:
    """What the front must know of the model it serves; `flags` are the resolved ones, as in `/server_info`."""

    flags: Mapping[str, Any]
    method: Method
    context_length: int
    vocabulary: int
    incremental: bool
    version: str
    model_type: str | None = None
    architectures: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name clients see."""
        return str(self.flags["served_model_name"])


class GenerateCall:
    """The prompts of one HTTP request: started together, their outputs in one queue."""

    def __init__(
        self,
        body: GenerateBody,
        received: float,
        model: ServedModel,
        engine: EngineThread,
        codec: TextCodec,
        metrics: ServerMetrics | None,
    ) -> None:
        self._body = body
        self._received = received
        self._model = model
        self._engine = engine
        self._codec = codec
        self._metrics = metrics
        self._outputs: asyncio.Queue[tuple[int, StepOutput | RequestRefusedError]] = asyncio.Queue()
        self.states: list[RequestState] = []

    def start(self) -> None:
        """Check all prompts, then hand them to the engine; raises BadRequestError before any is started."""
        tokenised = [self._checked_ids(prompt) for prompt in self._body.prompts]
        for index, (prompt, ids) in enumerate(zip(self._body.prompts, tokenised, strict=True)):
            clock = RequestClock(self._received, dispatched=time.perf_counter())
            incremental = self._body.stream and self._model.incremental
            self.states.append(RequestState(prompt, ids, self._codec, clock, incremental))
            request = prompt.engine_request(ids, self._model.context_length)
            self._engine.submit(request, self._stops(prompt), partial(self._put, index))

    async def bodies(self) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Each step's body with its prompt's index, until all prompts are finished."""
        left = len(self.states)
        while left:
            index, output = await self._outputs.get()
            if isinstance(output, RequestRefusedError):
                raise BadRequestError(str(output))
            body = self.states[index].advance(output)
            if output.event.finish is not None:
                left -= 1
                self._count(self.states[index].clock, output)
            yield index, body

    async def last_bodies(self) -> list[dict[str, Any]]:
        """The final body of each prompt."""
        last = {index: body async for index, body in self.bodies()}
        return [last[index] for index in range(len(self.states))]

    def close(self) -> None:
        """End what is still running; its client is gone."""
        for state in self.states:
            self._engine.forget(state.prompt.request_id)

    def _put(self, index: int, output: StepOutput | RequestRefusedError) -> None:
        """Take one prompt's output from the engine's thread."""
        self._outputs.put_nowait((index, output))

    def _checked_ids(self, prompt: PromptRequest) -> list[int]:
        """A prompt's ids, checked against the model."""
        ids = self._codec.encode(prompt.text) if prompt.text is not None else list(prompt.input_ids or ())
        check_ids(ids, self._model.vocabulary)
        check_length(prompt, len(ids), self._model.context_length)
        check_logprobs(prompt, len(ids), self._model.method)
        if self._engine.has_request(prompt.request_id):
            raise BadRequestError(f"Duplicate request ID detected: {prompt.request_id}")
        return ids

    def _stops(self, prompt: PromptRequest) -> StopStrings | None:
        """The watcher for a prompt's stop strings."""
        if not prompt.stop_strings:
            return None
        return StopStrings(self._codec, prompt.stop_strings, prompt.skip_special_tokens)

    def _count(self, clock: RequestClock, output: StepOutput) -> None:
        """Enter a finished prompt into the metrics."""
        if self._metrics is None:
            return
        first = None if clock.prefill_finished is None else clock.prefill_finished - clock.received
        total = output.step_finished - clock.received
        self._metrics.observe_finished(output.event, self._body.stream, first, total)
