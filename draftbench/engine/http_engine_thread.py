"""The thread that owns the engine, and the asyncio side's way to reach it.

Commands go in through a queue, on which an idle thread sleeps; each step's outputs come back in one call.
"""

import asyncio
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from draftbench.engine.http_request_state import StepOutput
from draftbench.engine.http_text import StopStrings
from draftbench.engine.interface import GenerationRequest, RequestRefusedError, TokenEvent
from draftbench.errors import DraftbenchError, ServerError

OutputSink = Callable[[StepOutput | RequestRefusedError], None]
Command = Callable[[], None]


class EngineLike(Protocol):
    """The engine as the front sees it: `draftbench.engine.engine.Engine`, or the stub's."""

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request."""

    def abort(self, request_id: str) -> None:
        """End a request at the next step."""

    def step(self) -> list[TokenEvent]:
        """One prefill or decode step."""

    def has_work(self) -> bool:
        """Whether a step has anything to do."""

    @property
    def running_count(self) -> int:
        """Requests that hold a slot."""

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a slot."""

    def flush_cache(self) -> bool:
        """Forget kept prefixes; False while busy."""

    def describe(self) -> dict[str, Any]:
        """The resolved settings."""


class EngineThread:
    """Builds the engine in its own thread and steps it there; every other method is for the asyncio thread."""

    def __init__(self, build: Callable[[], EngineLike]) -> None:
        self._build = build
        self._engine: EngineLike | None = None
        self._start_error: DraftbenchError | None = None
        self._built = threading.Event()
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._stops: dict[str, StopStrings] = {}
        self._sinks: dict[str, OutputSink] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._description: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Build the engine; returns when it can take requests, raises what its construction raised."""
        self._thread.start()
        self._built.wait()
        if self._start_error is not None:
            raise self._start_error

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Name the loop on which sinks are called; before the first request."""
        self._loop = loop

    @property
    def description(self) -> dict[str, Any]:
        """What the engine resolved its settings to."""
        return self._description

    @property
    def running_count(self) -> int:
        """Requests that hold a slot now."""
        return 0 if self._engine is None else self._engine.running_count

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a slot now."""
        return 0 if self._engine is None else self._engine.waiting_count

    def submit(self, request: GenerationRequest, stops: StopStrings | None, sink: OutputSink) -> None:
        """Queue a request; `sink` gets its outputs in order, or its refusal by the engine."""
        assert request.request_id not in self._sinks
        self._sinks[request.request_id] = sink
        self._commands.put(lambda: self._submit(request, stops))

    def has_request(self, request_id: str) -> bool:
        """Whether a request of this id is not yet finished."""
        return request_id in self._sinks

    def request_ids(self) -> list[str]:
        """The ids of all requests not yet finished."""
        return list(self._sinks)

    def abort(self, request_id: str) -> None:
        """End a request; its sink still gets the last output."""
        self._commands.put(lambda: self._owned_engine().abort(request_id))

    def forget(self, request_id: str) -> None:
        """End a request whose client is gone; its sink is not called again."""
        if self._sinks.pop(request_id, None) is not None:
            self.abort(request_id)

    async def flush_cache(self) -> bool:
        """Forget kept prefixes; False while any request is running or waiting."""
        assert self._loop is not None
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._commands.put(lambda: self._answer(answer, self._owned_engine().flush_cache()))
        return await answer

    def _run(self) -> None:
        """The thread's body; a fault in the engine ends the process, so that no request hangs on a dead engine."""
        try:
            self._engine = self._build()
            self._description = self._engine.describe()
        except DraftbenchError as error:
            self._start_error = error
            return
        except Exception as error:  # any fault at start-up must reach the waiting thread
            traceback.print_exc()
            self._start_error = ServerError(f"engine start-up failed: {type(error).__name__}: {error}")
            return
        finally:
            self._built.set()
        try:
            while True:
                self._obey_commands()
                self._step()
        except Exception:
            traceback.print_exc()
            print("draftbench: the engine failed; the server ends", file=sys.stderr, flush=True)
            os._exit(1)

    def _owned_engine(self) -> EngineLike:
        """The engine, once it stands."""
        assert self._engine is not None
        return self._engine

    def _obey_commands(self) -> None:
        """Carry out what came in; sleep on the queue while there is nothing to step."""
        engine = self._owned_engine()
        while not engine.has_work():
            self._commands.get()()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _submit(self, request: GenerationRequest, stops: StopStrings | None) -> None:
        """Hand a request to the engine, or its refusal back."""
        try:
            self._owned_engine().submit(request)
        except RequestRefusedError as error:
            self._call(self._refuse, request.request_id, error)
            return
        if stops is not None:
            self._stops[request.request_id] = stops

    def _step(self) -> None:
        """One engine step, its outputs handed over in one call."""
        engine = self._owned_engine()
        if not engine.has_work():
            return
        started = time.perf_counter()
        events = engine.step()
        finished = time.perf_counter()
        outputs = [self._cut_at_stop(event, started, finished) for event in events]
        if outputs:
            self._call(self._deliver, outputs)

    def _cut_at_stop(self, event: TokenEvent, started: float, finished: float) -> StepOutput:
        """End a request whose new tokens complete a stop string; tokens after it are dropped."""
        stops = self._stops.get(event.request_id)
        found = None if stops is None else stops.push(event.new_ids)
        if event.finish is not None:
            self._stops.pop(event.request_id, None)
        if found is None:
            return StepOutput(event, None, started, finished)
        self._stops.pop(event.request_id, None)
        if event.finish is None:
            self._owned_engine().abort(event.request_id)
        return StepOutput(cut_event(event, found[0]), found[1], started, finished)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Run something in the asyncio thread; a loop that is closing is no error."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _answer(self, future: "asyncio.Future[bool]", value: bool) -> None:
        """Resolve a future of the asyncio thread."""

        def resolve() -> None:
            if not future.done():
                future.set_result(value)

        self._call(resolve)

    def _deliver(self, outputs: Sequence[StepOutput]) -> None:
        """In the asyncio thread: give each output to its request; those of forgotten ones are dropped."""
        for output in outputs:
            request_id = output.event.request_id
            sink = self._sinks.get(request_id)
            if output.event.finish is not None:
                self._sinks.pop(request_id, None)
            if sink is not None:
                sink(output)

    def _refuse(self, request_id: str, error: RequestRefusedError) -> None:
        """In the asyncio thread: tell a request that the engine will not have it."""
        sink = self._sinks.pop(request_id, None)
        if sink is not None:
            sink(error)


def cut_event(event: TokenEvent, kept: int) -> TokenEvent:
    """The event as if it had ended after its first `kept` tokens; acceptance counters keep the full run."""
    dropped = len(event.new_ids) - kept
    assert dropped >= 0
    logprobs = event.output_logprobs
    return replace(
        event,
        new_ids=event.new_ids[:kept],
        finish="stop",
        matched_stop=None,
        completion_tokens=event.completion_tokens - dropped,
        output_logprobs=None if logprobs is None else logprobs[:kept],
    )
