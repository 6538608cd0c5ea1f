"""The engine's thread: commands in, outputs back, nothing done while idle."""

import asyncio
from typing import Any

import pytest

from draftbench.engine.http_engine_thread import EngineThread, cut_event
from draftbench.engine.http_request_state import StepOutput
from draftbench.engine.http_text import StopStrings
from draftbench.engine.interface import GenerationRequest, RequestRefusedError, SamplingSettings, TokenEvent
from draftbench.errors import ModelError, ServerError
from tests.fakes.scripted_engine import Script, ScriptedEngine
from tests.unit.engine.front_driving import WORDS, WordCodec


class CountingEngine(ScriptedEngine):
    """Counts its steps, and refuses the request named "bad"."""

    def __init__(self, **script: Any) -> None:
        super().__init__(Script(**({"vocabulary": len(WORDS), "natural_stops": False} | script)))
        self.steps = 0

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request."""
        if request.request_id == "bad":
            raise RequestRefusedError("not this one")
        super().submit(request)

    def step(self) -> list[TokenEvent]:
        """One step."""
        self.steps += 1
        return super().step()


def request(name: str, tokens: int = 4) -> GenerationRequest:
    """A greedy request."""
    return GenerationRequest(name, (5, 6), SamplingSettings(0.0, tokens))


class Collected:
    """A sink that keeps what it gets and tells when the request ended."""

    def __init__(self) -> None:
        self.outputs: list[StepOutput | RequestRefusedError] = []
        self.ended = asyncio.Event()

    def __call__(self, output: StepOutput | RequestRefusedError) -> None:
        """Take one output."""
        self.outputs.append(output)
        if isinstance(output, RequestRefusedError) or output.event.finish is not None:
            self.ended.set()

    @property
    def events(self) -> list[TokenEvent]:
        """The events so far."""
        return [output.event for output in self.outputs if isinstance(output, StepOutput)]


def running(engine: ScriptedEngine) -> EngineThread:
    """A started thread on the test's loop."""
    thread = EngineThread(lambda: engine)
    thread.start()
    thread.attach(asyncio.get_running_loop())
    return thread


async def test_each_step_is_one_output_in_order() -> None:
    """Four tokens of AR: the prefill's and three decode steps."""
    sink: Collected = Collected()
    thread = running(CountingEngine())
    thread.submit(request("a"), None, sink)
    await sink.ended.wait()

    assert [event.completion_tokens for event in sink.events] == [1, 2, 3, 4]
    assert [event.finish for event in sink.events] == [None, None, None, "length"]
    assert not thread.has_request("a")


async def test_an_idle_engine_is_never_stepped() -> None:
    """No step before the first request, and after it no more than it needed."""
    engine = CountingEngine()
    thread = running(engine)
    assert await thread.flush_cache()
    assert engine.steps == 0

    sink = Collected()
    thread.submit(request("a"), None, sink)
    await sink.ended.wait()
    assert await thread.flush_cache()
    assert engine.steps == 4


async def test_a_refusal_of_the_engine_reaches_the_sink() -> None:
    """And the id is free again."""
    sink = Collected()
    thread = running(CountingEngine())
    thread.submit(request("bad"), None, sink)
    await sink.ended.wait()

    assert [str(output) for output in sink.outputs] == ["not this one"]
    assert not thread.has_request("bad")


async def test_a_flush_is_refused_while_a_request_runs() -> None:
    """And granted when it has ended."""
    sink = Collected()
    thread = running(CountingEngine(step_seconds=0.01))
    thread.submit(request("a", 50), None, sink)
    assert not await thread.flush_cache()

    thread.abort("a")
    await sink.ended.wait()
    assert sink.events[-1].finish == "abort"
    assert await thread.flush_cache()


async def test_a_forgotten_request_ends_and_its_sink_is_left_alone() -> None:
    """What a client that went away asked for does not hold a slot, nor call back."""
    engine = CountingEngine(step_seconds=0.01)
    gone, other = Collected(), Collected()
    thread = running(engine)
    thread.submit(request("gone", 10_000), None, gone)
    thread.forget("gone")
    thread.submit(request("other"), None, other)
    await other.ended.wait()

    assert gone.outputs == []
    assert await thread.flush_cache()  # nothing runs any more


async def test_a_stop_string_ends_the_request_with_the_token_that_completes_it() -> None:
    """The engine is told to stop, and the request's last output names the string."""
    sink = Collected()
    thread = running(CountingEngine())
    thread.submit(request("a", 200), StopStrings(WordCodec(), ["name"]), sink)
    await sink.ended.wait()
    last = sink.outputs[-1]

    assert isinstance(last, StepOutput)
    assert (last.stop_string, last.matched_stop, last.event.finish) == ("name", "name", "stop")
    words = [WORDS[token] for event in sink.events for token in event.new_ids]
    assert words.index(" name") == len(words) - 1 == last.event.completion_tokens - 1


def test_a_cut_event_keeps_the_full_acceptance_record() -> None:
    """Two of three new tokens kept: the count falls by one, the step's accepted run stays, as in SGLang."""
    event = TokenEvent("a", (3, 4, 5), None, None, 0, 2, 10, 4, 6, 28, (2, 0, 1, 1))

    cut = cut_event(event, 2)

    assert (cut.new_ids, cut.completion_tokens, cut.finish) == ((3, 4), 9, "stop")
    assert (cut.verify_steps, cut.accepted_drafts, cut.accept_histogram) == (4, 6, (2, 0, 1, 1))


def test_a_users_mistake_at_start_up_is_raised_where_the_server_starts() -> None:
    """The construction's own error, unchanged."""

    def build() -> ScriptedEngine:
        raise ModelError("no such drafter")

    with pytest.raises(ModelError, match="no such drafter"):
        EngineThread(build).start()


def test_any_other_fault_at_start_up_is_one_line_too() -> None:
    """With the fault's name; the traceback is in the log."""

    def build() -> ScriptedEngine:
        raise MemoryError("2 GiB")

    with pytest.raises(ServerError, match="engine start-up failed: MemoryError: 2 GiB"):
        EngineThread(build).start()


async def test_requests_of_many_tasks_keep_apart() -> None:
    """Twenty requests over eight slots: each gets its own four tokens, the same for the same prompt."""
    thread = running(CountingEngine())
    sinks = {f"r{index}": Collected() for index in range(20)}
    for name, sink in sinks.items():
        thread.submit(request(name), None, sink)
    answers = set()
    for name, sink in sinks.items():
        await sink.ended.wait()
        assert {event.request_id for event in sink.events} == {name}
        answers.add(tuple(token for event in sink.events for token in event.new_ids))

    assert [len(answer) for answer in answers] == [4]
