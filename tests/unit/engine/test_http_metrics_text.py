"""The counters behind `/metrics`; form and names are held to the recordings by test_contract."""

from typing import Any

from draftbench.engine.interface import TokenEvent
from draftbench.engine.metrics_text import Histogram, ServerMetrics


def finished(**more: Any) -> TokenEvent:
    """A finished request of 10 prompt and 6 completion tokens."""
    fields = {"new_ids": (1,), "finish": "length", "matched_stop": None, "cached_tokens": 4} | more
    return TokenEvent(request_id="r", prompt_tokens=10, completion_tokens=6, **fields)


def samples(metrics: ServerMetrics, running: int = 0, waiting: int = 0) -> dict[str, float]:
    """Each sample of the text by its name and labels."""
    lines = metrics.render(running, waiting, 8192).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def value(found: dict[str, float], name: str, *labels: str) -> float:
    """The one sample of this name with these labels."""
    (match,) = [
        number
        for key, number in found.items()
        if key.startswith(f"sglang:{name}{{") and all(part in key for part in labels)
    ]
    return match


def test_tokens_are_counted_apart_for_streams() -> None:
    """Two streamed requests and one other, 10 and 6 tokens each."""
    metrics = ServerMetrics("m")
    for streamed in (True, True, False):
        metrics.observe_finished(finished(), streamed, 0.1, 0.5)
    found = samples(metrics)

    assert value(found, "prompt_tokens_total", 'is_streaming="true"') == 20
    assert value(found, "generation_tokens_total", 'is_streaming="false"') == 6
    assert value(found, "num_requests_total", 'is_streaming="true"') == 2
    assert value(found, "cached_tokens_total", 'cache_source="device"') == 12


def test_acceptance_is_averaged_over_steps_and_begins_anew_with_a_flush() -> None:
    """4 + 1 steps with 6 + 4 accepted of 28 + 7: 1 + 10/5 = 3 and 10/35; then 2 steps with 1 of 14: 1.5."""
    metrics = ServerMetrics("m")
    metrics.observe_finished(finished(verify_steps=4, accepted_drafts=6, proposed_drafts=28), True, 0.1, 0.5)
    metrics.observe_finished(finished(verify_steps=1, accepted_drafts=4, proposed_drafts=7), True, 0.1, 0.5)
    before = samples(metrics)
    metrics.forget_speculation()
    metrics.observe_finished(finished(verify_steps=2, accepted_drafts=1, proposed_drafts=14), True, 0.1, 0.5)
    after = samples(metrics)

    assert value(before, "spec_accept_length") == 3.0
    assert value(before, "spec_accept_rate") == 10 / 35
    assert value(after, "spec_accept_length") == 1.5
    assert value(after, "spec_verify_calls_total") == 7  # a counter is never set back


def test_an_abort_is_counted_as_one() -> None:
    """Beside the requests that ended by themselves."""
    metrics = ServerMetrics("m")
    metrics.observe_finished(finished(finish="abort"), True, None, 0.5)
    found = samples(metrics, running=3, waiting=2)

    assert value(found, "num_aborted_requests_total") == 1
    assert (value(found, "num_running_reqs"), value(found, "num_queue_reqs")) == (3, 2)


def test_histogram_buckets_are_cumulative_with_inclusive_bounds() -> None:
    """0.1 falls into le=0.1, 0.3 into le=0.4, 1000 only into +Inf."""
    metrics = ServerMetrics("m")
    for seconds in (0.1, 0.3, 1000.0):
        metrics.observe_finished(finished(), False, None, seconds)
    found = samples(metrics)

    counts = [
        value(found, "e2e_request_latency_seconds_bucket", f'le="{bound}"') for bound in ("0.1", "0.2", "0.4", "+Inf")
    ]
    assert counts == [1, 1, 2, 3]
    assert value(found, "e2e_request_latency_seconds_sum") == 1000.4
    assert value(found, "e2e_request_latency_seconds_count") == 3


def test_a_histogram_has_one_bin_more_than_bounds() -> None:
    """Values above the last bound are not lost."""
    histogram = Histogram((1.0, 2.0))
    for seconds in (1.0, 1.5, 2.5):
        histogram.observe(seconds)

    assert (histogram.counts, histogram.total) == ([1, 1, 1], 5.0)


def test_label_values_are_escaped() -> None:
    """A quote or backslash in a model's name must not break the text."""
    assert r'model_name="a\"b\\c"' in ServerMetrics('a"b\\c').render(0, 0, 1)
