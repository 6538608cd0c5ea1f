"""An engine without a model: token streams made from a hash, real acceptance bookkeeping, set step times.

The same prompt gives the same tokens whatever the method and budget, as lossless decoding must;
how many of them one step accepts is drawn by a seed of its own.
"""

import hashlib
import random
import threading
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from draftbench.engine.interface import GenerationRequest, InputLogprob, OutputLogprob, TokenEvent

PREFIX_BLOCK = 64  # tokens a remembered prefix block has


@dataclass(frozen=True)
class Script:
    """How the scripted engine behaves; times in seconds."""

    method: str = "AR"
    draft_budget: int = 0
    depth: int = 0
    mean_yield: float = 1.0
    step_seconds: float = 0.0
    prefill_seconds: float = 0.0
    max_running_requests: int = 8
    vocabulary: int = 49152
    end_id: int = 2
    natural_stops: bool = True
    seed: int = 0
    prefix_reuse: bool = True

    def __post_init__(self) -> None:
        assert self.mean_yield >= 1.0
        assert self.method == "AR" or self.mean_yield <= 1 + self.depth


@dataclass
class ScriptedRequest:
    """One request's whole future and how much of it was told."""

    request: GenerationRequest
    tokens: list[int]
    ends_naturally: bool
    cached: int
    acceptance: random.Random
    told: int = 0
    steps: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    aborted: bool = False


class ScriptedEngine:
    """Continuous batching over scripted requests: one prefill or one decode step a call of `step`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.hanging = False
        self.flush_refused = False
        self._probability = acceptance_probability(script.mean_yield - 1, script.depth)
        self._waiting: deque[ScriptedRequest] = deque()
        self._running: dict[str, ScriptedRequest] = {}
        self._prefixes: set[bytes] = set()

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request."""
        self._waiting.append(self._scripted(request))

    def abort(self, request_id: str) -> None:
        """End a request at the next step."""
        for scripted in (*self._waiting, *self._running.values()):
            if scripted.request.request_id == request_id:
                scripted.aborted = True

    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def running_count(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    def flush_cache(self) -> bool:
        """Forget prefixes; False while busy, or always where that failure is planted."""
        if self.has_work() or self.flush_refused:
            return False
        self._prefixes.clear()
        return True

    def describe(self) -> dict[str, Any]:
        """What was scripted."""
        return {"scripted": True, "method": self.script.method, "draft_budget": self.script.draft_budget}

    def step(self) -> list[TokenEvent]:
        """One step, in the scripted time."""
        started = time.perf_counter()
        if self.hanging:
            threading.Event().wait()
        aborted = self._drop_aborted()
        if aborted:
            return aborted
        if self._waiting and len(self._running) < self.script.max_running_requests:
            events, cost = [self._prefill()], self.script.prefill_seconds
        else:
            events, cost = self._decode(), self.script.step_seconds
        left = started + cost - time.perf_counter()
        if left > 0:
            time.sleep(left)
        return events

    def _drop_aborted(self) -> list[TokenEvent]:
        """The last events of aborted requests."""
        aborted = [one for one in (*self._waiting, *self._running.values()) if one.aborted]
        self._waiting = deque(one for one in self._waiting if not one.aborted)
        for one in aborted:
            self._running.pop(one.request.request_id, None)
        return [self._event(one, [], "abort") for one in aborted]

    def _prefill(self) -> TokenEvent:
        """Admit the next request; its first token."""
        scripted = self._waiting.popleft()
        scripted.cached = self._remember(scripted.request.input_ids)
        self._running[scripted.request.request_id] = scripted
        return self._tell(scripted, 1)

    def _decode(self) -> list[TokenEvent]:
        """One step of every running request."""
        return [self._tell(scripted, self._accepted_run(scripted) + 1) for scripted in list(self._running.values())]

    def _accepted_run(self, scripted: ScriptedRequest) -> int:
        """Drafts accepted in this step, entered into the request's record; always 0 for AR, unrecorded."""
        if self.script.method == "AR":
            return 0
        run = 0
        while run < self.script.depth and scripted.acceptance.random() < self._probability:
            run += 1
        scripted.steps += 1
        scripted.accepted += run
        scripted.histogram.extend([0] * (run + 1 - len(scripted.histogram)))
        scripted.histogram[run] += 1
        return run

    def _tell(self, scripted: ScriptedRequest, count: int) -> TokenEvent:
        """Emit up to `count` more tokens."""
        tokens = scripted.tokens[scripted.told : scripted.told + count]
        scripted.told += len(tokens)
        if scripted.told < len(scripted.tokens):
            return self._event(scripted, tokens, None)
        del self._running[scripted.request.request_id]
        self._remember((*scripted.request.input_ids, *scripted.tokens))
        return self._event(scripted, tokens, "stop" if scripted.ends_naturally else "length")

    def _event(self, scripted: ScriptedRequest, tokens: list[int], finish: Any) -> TokenEvent:
        """The event of one request."""
        stopped = finish == "stop"
        return TokenEvent(
            request_id=scripted.request.request_id,
            new_ids=tuple(tokens),
            finish=finish,
            matched_stop=scripted.tokens[-1] if stopped else None,
            cached_tokens=scripted.cached,
            prompt_tokens=len(scripted.request.input_ids),
            completion_tokens=scripted.told,
            verify_steps=scripted.steps,
            accepted_drafts=scripted.accepted,
            proposed_drafts=scripted.steps * self.script.draft_budget,
            accept_histogram=tuple(scripted.histogram),
            input_logprobs=self._prompt_scores(scripted),
            output_logprobs=self._logprobs(scripted.request, tokens),
        )

    def _prompt_scores(self, scripted: ScriptedRequest) -> tuple[InputLogprob, ...] | None:
        """With the first token: each prompt token is its position's best, the next id the second by 1 nat."""
        request = scripted.request
        if not request.return_input_logprobs or scripted.told != 1:
            return None
        return tuple(
            InputLogprob(position, token, -0.5, ((-0.5, token), (-1.5, token + 1)), (1.0, 0.0))
            for position, token in enumerate(request.input_ids)
            if position >= request.input_logprobs_start
        )

    def _logprobs(self, request: GenerationRequest, tokens: list[int]) -> tuple[OutputLogprob, ...] | None:
        """Made-up log-probabilities, -0.5 for the chosen token and one less for each further candidate."""
        if not request.return_top_logprobs:
            return None
        others = range(1, request.return_top_logprobs)
        return tuple(
            OutputLogprob(token, -0.5, ((-0.5, token), *((-0.5 - rank, token + rank) for rank in others)))
            for token in tokens
        )

    def _scripted(self, request: GenerationRequest) -> ScriptedRequest:
        """The whole answer to a request, from its prompt (and, when sampled, its seed) alone."""
        sampling = request.sampling
        digest = hashlib.blake2b(array("q", request.input_ids).tobytes(), digest_size=8).digest()
        content = random.Random(digest + (str(sampling.seed).encode() if sampling.temperature > 0 else b""))
        cap = max(1, sampling.max_new_tokens)
        length = max(1, round(cap * content.uniform(0.5, 1.25)))
        ends = self.script.natural_stops and not sampling.ignore_eos and length <= cap
        tokens = content.choices(range(self.script.end_id + 1, self.script.vocabulary), k=length if ends else cap)
        if ends:
            tokens[-1] = self.script.end_id
        seed = f"{self.script.seed} {self.script.method} {self.script.draft_budget}".encode() + digest
        return ScriptedRequest(request, tokens, ends, 0, random.Random(seed))

    def _remember(self, ids: tuple[int, ...]) -> int:
        """Keep the sequence's prefix blocks; how many of its tokens were known, the last never among them."""
        if not self.script.prefix_reuse:
            return 0
        known, still_known, chain = 0, True, hashlib.blake2b(digest_size=8)
        for end in range(PREFIX_BLOCK, len(ids), PREFIX_BLOCK):
            chain.update(array("q", ids[end - PREFIX_BLOCK : end]).tobytes())
            block = chain.digest()
            still_known = still_known and block in self._prefixes
            known = end if still_known else known
            self._prefixes.add(block)
        return known


def acceptance_probability(mean_accepted: float, depth: int) -> float:
    """The chance p a draft position is accepted, so that p + p^2 + ... + p^depth is the mean run."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**position for position in range(1, depth + 1)) < mean_accepted:
            low = middle
        else:
            high = middle
    return low
