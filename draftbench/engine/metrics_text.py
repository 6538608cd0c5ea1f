"""The server's counters and their Prometheus text, under SGLang's metric names."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from draftbench.engine.interface import TokenEvent

LATENCY_BUCKETS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = dict[str, str]


@dataclass
class Histogram:
    """Observations in buckets of seconds; the last bin is above all bounds."""

    bounds: tuple[float, ...] = LATENCY_BUCKETS
    total: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class ServerMetrics:
    """What the server counted since it started; the speculative sums since the last flush."""

    model_name: str
    prompt_tokens: Counter[bool] = field(default_factory=Counter)
    generation_tokens: Counter[bool] = field(default_factory=Counter)
    requests: Counter[bool] = field(default_factory=Counter)
    cached_tokens: int = 0
    verify_steps: int = 0
    aborted_requests: int = 0
    flushed_verify_steps: int = 0
    flushed_accepted: int = 0
    flushed_proposed: int = 0
    http_requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    http_responses: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    first_token: dict[bool, Histogram] = field(default_factory=dict)
    end_to_end: dict[bool, Histogram] = field(default_factory=dict)

    def observe_finished(self, event: TokenEvent, streamed: bool, first_token: float | None, total: float) -> None:
        """Count a request that ended; times in seconds since it was received."""
        assert event.finish is not None
        if event.finish == "abort":
            self.aborted_requests += 1
        self.requests[streamed] += 1
        self.prompt_tokens[streamed] += event.prompt_tokens
        self.generation_tokens[streamed] += event.completion_tokens
        self.cached_tokens += event.cached_tokens
        self.verify_steps += event.verify_steps
        self.flushed_verify_steps += event.verify_steps
        self.flushed_accepted += event.accepted_drafts
        self.flushed_proposed += event.proposed_drafts
        self.end_to_end.setdefault(streamed, Histogram()).observe(total)
        if first_token is not None:
            self.first_token.setdefault(streamed, Histogram()).observe(first_token)

    def forget_speculation(self) -> None:
        """Begin the average acceptance anew, as a flush does in SGLang."""
        self.flushed_verify_steps = self.flushed_accepted = self.flushed_proposed = 0

    @property
    def accept_length(self) -> float:
        """1 + accepted drafts / steps since the last flush; 0 before any step, as SGLang's gauge."""
        if self.flushed_verify_steps == 0:
            return 0.0
        return 1 + self.flushed_accepted / self.flushed_verify_steps

    @property
    def accept_rate(self) -> float:
        """Accepted / proposed drafts since the last flush; 0 before any step."""
        return self.flushed_accepted / self.flushed_proposed if self.flushed_proposed else 0.0

    def render(self, running: int, waiting: int, max_total_tokens: int) -> str:
        """The text of `/metrics`."""
        model = {"engine_type": "unified", "model_name": self.model_name}
        rank = model | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        lines: list[str] = []
        lines += _single("num_running_reqs", "gauge", "The number of running requests.", rank, running)
        lines += _single("num_queue_reqs", "gauge", "The number of requests in the waiting queue.", rank, waiting)
        lines += _single("max_total_num_tokens", "gauge", "Tokens that the KV cache holds.", rank, max_total_tokens)
        lines += _single("spec_accept_length", "gauge", "Mean tokens a verify step.", rank, self.accept_length)
        lines += _single("spec_accept_rate", "gauge", "Accepted per proposed draft token.", rank, self.accept_rate)
        lines += _single("spec_verify_calls_total", "counter", "Verify steps.", model, self.verify_steps)
        lines += _single("num_aborted_requests_total", "counter", "Aborted requests.", model, self.aborted_requests)
        device = model | {"cache_source": "device"}
        lines += _single("cached_tokens_total", "counter", "Prompt tokens from the cache.", device, self.cached_tokens)
        lines += self._streaming_counters(model)
        lines += self._http_counters()
        lines += _histograms("time_to_first_token_seconds", "Time to first token.", model, self.first_token)
        lines += _histograms("e2e_request_latency_seconds", "Request latency.", model, self.end_to_end)
        return "\n".join(lines) + "\n"

    def _streaming_counters(self, model: Labels) -> list[str]:
        """Counters kept apart for streamed and other requests."""
        families = {
            "prompt_tokens_total": ("Prefill tokens processed.", self.prompt_tokens),
            "generation_tokens_total": ("Generation tokens processed.", self.generation_tokens),
            "num_requests_total": ("Requests processed.", self.requests),
        }
        lines: list[str] = []
        for name, (text, counts) in families.items():
            samples = ((model | _streamed(streamed), count) for streamed, count in sorted(counts.items()))
            lines += _family(name, "counter", text, samples)
        return lines

    def _http_counters(self) -> list[str]:
        """Requests and responses by endpoint."""
        requests = (
            ({"endpoint": endpoint, "method": method}, count)
            for (endpoint, method), count in self.http_requests.items()
        )
        responses = (
            ({"endpoint": endpoint, "method": method, "status_code": str(status)}, count)
            for (endpoint, method, status), count in self.http_responses.items()
        )
        return _family("http_requests_total", "counter", "HTTP requests.", requests) + _family(
            "http_responses_total", "counter", "HTTP responses.", responses
        )


def _streamed(streamed: bool) -> dict[str, str]:
    """The label that keeps streamed requests apart."""
    return {"is_streaming": "true" if streamed else "false"}


def _sample(name: str, labels: Labels, value: float) -> str:
    """One line of the text format."""
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
    return f"sglang:{name}{{{pairs}}} {float(value)}"


def _escaped(text: str) -> str:
    """A label value in the text format."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> list[str]:
    """A metric's head and its samples."""
    head = [f"# HELP sglang:{name} {text}", f"# TYPE sglang:{name} {kind}"]
    return head + [_sample(name, labels, value) for labels, value in samples]


def _single(name: str, kind: str, text: str, labels: Labels, value: float) -> list[str]:
    """A metric of one sample."""
    return _family(name, kind, text, [(labels, value)])


def _histograms(name: str, text: str, model: Labels, histograms: Mapping[bool, Histogram]) -> list[str]:
    """A histogram metric, cumulative buckets as Prometheus wants them."""
    lines = _family(name, "histogram", text, ())
    for streamed, histogram in sorted(histograms.items()):
        labels = model | _streamed(streamed)
        seen = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            seen += count
            upper = "+Inf" if bound == float("inf") else str(float(bound))
            lines.append(_sample(f"{name}_bucket", labels | {"le": upper}, seen))
        lines.append(_sample(f"{name}_sum", labels, histogram.total))
        lines.append(_sample(f"{name}_count", labels, seen))
    return lines
