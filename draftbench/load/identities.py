"""Every rule that makes a cell valid evidence; a rule yields one line for each request that breaks it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from draftbench.load.metrics import decode_tokens, is_merged, step_gaps_ms
from draftbench.load.prefixes import PrefixIndex
from draftbench.records import Check, RequestRecord

Records = Sequence[RequestRecord]


@dataclass(frozen=True)
class CellFacts:
    """What the plan and the client know of a cell, against which the server's account is held.

    `prompts` are the ids sent, by request number; the cache was empty when the first one went out.
    `max_client_lag_share` is the share of a median step that the client's loop lag (p99) may reach.
    """

    speculative: bool
    verify_width: int | None
    planned_requests: int
    instance_id: str
    prompts: Mapping[int, Sequence[int]]
    loop_lag_p99_ms: float
    max_client_lag_share: float


@dataclass(frozen=True)
class Rule:
    """One validity rule; `failure_class` is the cell's when the rule is broken."""

    name: str
    failure_class: str
    problems: Callable[[Records, CellFacts], Iterator[str]]
    note: Callable[[Records, CellFacts], str] = lambda _records, _facts: ""

    def check(self, records: Records, facts: CellFacts) -> Check:
        """Apply the rule; the detail names the first problem and counts the rest, or holds the rule's note."""
        problems = list(self.problems(records, facts))
        if not problems:
            return Check(name=self.name, passed=True, detail=self.note(records, facts))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Check(name=self.name, passed=False, detail=problems[0] + more)


def check_cell(records: Records, facts: CellFacts) -> list[Check]:
    """Apply every rule; requests that did not end are judged by `all_requests_done` alone."""
    complete = [record for record in records if _is_complete(record)]
    return [rule.check(records if rule.name == "all_requests_done" else complete, facts) for rule in RULES]


def failure_class(checks: Sequence[Check]) -> str | None:
    """The class of the first broken rule, None for a valid cell."""
    classes = {rule.name: rule.failure_class for rule in RULES}
    return next((classes[check.name] for check in checks if not check.passed), None)


def _is_complete(record: RequestRecord) -> bool:
    return record.error is None and record.completion_tokens is not None and bool(record.chunks)


def _where(record: RequestRecord) -> str:
    return f"conversation {record.conversation} turn {record.turn}"


def _all_done(records: Records, facts: CellFacts) -> Iterator[str]:
    for record in records:
        if not _is_complete(record):
            yield f"{_where(record)}: {record.error or 'no token came'}"
    done = len({record.request for record in records})
    if done != facts.planned_requests:
        yield f"{done} of {facts.planned_requests} planned requests were sent"


def _same_instance(records: Records, facts: CellFacts) -> Iterator[str]:
    for record in records:
        if record.instance_id != facts.instance_id:
            yield f"{_where(record)}: answered by {record.instance_id}, not by {facts.instance_id}"


def _prompt_tokens(records: Records, _facts: CellFacts) -> Iterator[str]:
    for record in records:
        if record.prompt_tokens != record.sent_tokens:
            yield f"{_where(record)}: {record.sent_tokens} ids sent, {record.prompt_tokens} prompt tokens counted"


def _chunk_tokens(records: Records, _facts: CellFacts) -> Iterator[str]:
    for record in records:
        total = sum(chunk.new_tokens for chunk in record.chunks)
        if not total == record.completion_tokens == len(record.output_ids):
            yield (
                f"{_where(record)}: chunks hold {total} tokens, {len(record.output_ids)} ids came, "
                f"{record.completion_tokens} completion tokens counted"
            )


def _cap(records: Records, _facts: CellFacts) -> Iterator[str]:
    for record in records:
        tokens = record.completion_tokens or 0
        if tokens > record.max_new_tokens or (record.finish_reason == "length" and tokens < record.max_new_tokens):
            yield f"{_where(record)}: {record.finish_reason!r} after {tokens} tokens, cap {record.max_new_tokens}"


def _speculative_fields(records: Records, facts: CellFacts) -> Iterator[str]:
    """A request that ended with its first token needed no verify step, so it may lack the fields."""
    for record in records:
        if not facts.speculative and record.verify_steps is not None:
            yield f"{_where(record)}: {record.verify_steps} verify steps on the AR arm; the wrong server answered"
        if facts.speculative and record.verify_steps is None and decode_tokens(record):
            yield f"{_where(record)}: no speculative fields in meta_info; the server does not speculate"


def _histogram(records: Records, _facts: CellFacts) -> Iterator[str]:
    for record in _verified(records):
        counts = record.accept_histogram or []
        moment = sum(accepted * steps for accepted, steps in enumerate(counts))
        if sum(counts) != record.verify_steps:
            yield f"{_where(record)}: the histogram holds {sum(counts)} steps of {record.verify_steps}"
        elif moment != record.accepted_drafts:
            yield f"{_where(record)}: the histogram holds {moment} accepted drafts of {record.accepted_drafts}"


def _proposed(records: Records, facts: CellFacts) -> Iterator[str]:
    """Proposed drafts are steps x (verify width - 1); another number means another budget was served."""
    if facts.verify_width is None:
        return
    for record in _verified(records):
        planned = (record.verify_steps or 0) * (facts.verify_width - 1)
        if record.proposed_drafts != planned:
            yield f"{_where(record)}: {record.proposed_drafts} drafts proposed, the verify width asks for {planned}"


def _yield_bound(records: Records, _facts: CellFacts) -> Iterator[str]:
    """yield <= acceptance length, in whole numbers: N - n_first <= steps + accepted drafts."""
    for record in _verified(records):
        tokens, bound = decode_tokens(record) or 0, (record.verify_steps or 0) + (record.accepted_drafts or 0)
        if tokens > bound:
            yield f"{_where(record)}: {tokens} tokens after the first chunk, {bound} by steps and accepted drafts"


def _cached_tokens(records: Records, facts: CellFacts) -> Iterator[str]:
    """At most the longest prefix shared with anything sent before the first token came; 0 where nothing was.

    Output counts as sent with its prompt, since a server caches both.
    """
    by_send = sorted(records, key=lambda record: record.sent_ns)
    index = PrefixIndex()
    sent = 0
    for record in sorted(records, key=lambda record: record.chunks[0].time_ns):
        while sent < len(by_send) and by_send[sent].sent_ns < record.chunks[0].time_ns:
            other = by_send[sent]
            index.add(other.request, [*facts.prompts[other.request], *other.output_ids])
            sent += 1
        bound = index.longest_shared(record.request, facts.prompts[record.request])
        if record.cached_tokens is None or record.cached_tokens > bound:
            yield f"{_where(record)}: {record.cached_tokens} cached tokens where at most {bound} were sent before"


def _client_kept_up(records: Records, facts: CellFacts) -> Iterator[str]:
    step = median_step_ms(records)
    if step is not None and facts.loop_lag_p99_ms > facts.max_client_lag_share * step:
        yield (
            f"the client's loop lag (p99) was {facts.loop_lag_p99_ms:.2f} ms, over {facts.max_client_lag_share:.0%} "
            f"of a step of {step:.2f} ms; give it a core of its own"
        )


def _verified(records: Records) -> Iterator[RequestRecord]:
    return (record for record in records if record.verify_steps is not None)


def median_step_ms(records: Records) -> float | None:
    """Median gap between chunks over requests whose chunks are single steps; None where there is no such gap."""
    gaps = [gap for record in records if not is_merged(record) for gap in step_gaps_ms(record)]
    return median(gaps) if gaps else None


def _merged_note(records: Records, _facts: CellFacts) -> str:
    merged = sum(is_merged(record) for record in records)
    return f"{merged} of {len(records)} requests marked merged" if merged else ""


def _unmarked_merges(records: Records, _facts: CellFacts) -> Iterator[str]:
    """chunks - 1 = steps or fewer; more chunks than steps cannot come from merging."""
    for record in _verified(records):
        if len(record.chunks) - 1 > (record.verify_steps or 0):
            yield f"{_where(record)}: {len(record.chunks)} chunks for {record.verify_steps} verify steps"


def _cache_note(records: Records, _facts: CellFacts) -> str:
    cached, prompt = (sum(getattr(r, name) or 0 for r in records) for name in ("cached_tokens", "prompt_tokens"))
    return f"{cached} of {prompt} prompt tokens came from the cache"


def _lag_note(records: Records, facts: CellFacts) -> str:
    step = median_step_ms(records)
    of_step = f"of a step of {step:.2f} ms" if step is not None else "and no step to compare with"
    return f"loop lag p99 {facts.loop_lag_p99_ms:.2f} ms {of_step}"


RULES: tuple[Rule, ...] = (
    Rule("all_requests_done", "incomplete", _all_done),
    Rule("instance_unchanged", "identity", _same_instance),
    Rule("prompt_tokens_are_the_ids_sent", "identity", _prompt_tokens),
    Rule("chunk_tokens_sum_to_completion", "identity", _chunk_tokens),
    Rule("cap_held", "identity", _cap),
    Rule("speculative_fields_fit_the_arm", "identity", _speculative_fields),
    Rule("histogram_sums_to_steps", "identity", _histogram),
    Rule("proposed_drafts_fit_the_width", "identity", _proposed),
    Rule("yield_within_acceptance_length", "identity", _yield_bound),
    Rule("chunks_are_steps_or_marked", "identity", _unmarked_merges, _merged_note),
    Rule("cached_tokens_as_predicted", "cache_state", _cached_tokens, _cache_note),
    Rule("client_kept_up", "client_late", _client_kept_up, _lag_note),
)
