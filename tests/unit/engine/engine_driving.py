"""Driving an engine in tests: submit, step until idle, collect."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from draftbench.engine.engine import Engine
from draftbench.engine.interface import EngineSettings, GenerationRequest, Method, SamplingSettings, TokenEvent


@dataclass
class Outcome:
    """All ids of one request and its last event."""

    ids: list[int] = field(default_factory=list)
    events: list[TokenEvent] = field(default_factory=list)

    @property
    def last(self) -> TokenEvent:
        """The event that ended the request."""
        return self.events[-1]


def make_engine(
    target: Path, drafter: Path | None, method: Method = "AR", budget: int | None = None, **more: object
) -> Engine:
    """An fp32 engine on the CPU with one thread unless said otherwise."""
    defaults: dict[str, object] = {
        "max_running_requests": 4,
        "context_length": 512,
        "dtype": "float32",
        "device": "cpu",
        "threads": 1,
    }
    chosen = None if method == "AR" else drafter
    return Engine(EngineSettings(target, chosen, method, budget, **{**defaults, **more}))  # type: ignore[arg-type]


def greedy(count: int, **more: object) -> SamplingSettings:
    """Greedy, exactly `count` tokens."""
    return SamplingSettings(0.0, count, ignore_eos=True, **more)  # type: ignore[arg-type]


def run_requests(engine: Engine, requests: Iterable[GenerationRequest], at_once: int = 1) -> dict[str, Outcome]:
    """Keep `at_once` requests in the engine until all are done."""
    todo, outcomes, live = list(requests)[::-1], {}, 0
    while todo or engine.has_work():
        while todo and live < at_once:
            request = todo.pop()
            outcomes[request.request_id] = Outcome()
            engine.submit(request)
            live += 1
        for event in engine.step():
            outcomes[event.request_id].ids += event.new_ids
            outcomes[event.request_id].events.append(event)
            live -= event.finish is not None
    return outcomes


def run_prompts(
    engine: Engine, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, at_once: int = 1
) -> list[Outcome]:
    """`run_requests` for prompts with one sampling; outcomes in the prompts' order."""
    requests = [GenerationRequest(f"r{index}", tuple(ids), sampling) for index, ids in enumerate(prompts)]
    outcomes = run_requests(engine, requests, at_once)
    return [outcomes[f"r{index}"] for index in range(len(prompts))]
