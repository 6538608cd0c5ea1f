"""Grades replies against their references: never by running model text in this process.

A check that cannot be carried out is "not graded" with its reason, which is neither passed nor failed.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from draftbench.workloads.bfcl_calls import FunctionCall, parse_calls
from draftbench.workloads.schema import Reference

FENCE = re.compile(r"```(?:[\w+-]*)\n(.*?)(?:```|\Z)", re.DOTALL)
BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")
NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Grade:
    """`passed` is None where the reply was not graded; `well_formed` where the check knows no format."""

    passed: bool | None
    well_formed: bool | None
    reason: str

    @classmethod
    def not_graded(cls, reason: str) -> "Grade":
        """The check could not be carried out."""
        return cls(None, None, reason)


def grade_replies(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    """Return one grade a (reference, reply) pair, in order."""
    grades: dict[int, Grade] = {}
    for check in sorted({reference.check for reference, _ in pairs}):
        places = [place for place, (reference, _) in enumerate(pairs) if reference.check == check]
        grader = GRADERS.get(check, _no_check)
        grades |= dict(zip(places, grader([pairs[place] for place in places]), strict=True))
    return [grades[place] for place in range(len(pairs))]


def extract_fenced(reply: str) -> str:
    """Return the first fenced block of a reply, or the whole reply where there is none; indentation stays."""
    block = FENCE.search(reply)
    return (block.group(1) if block else reply).rstrip()


def final_number(reply: str) -> Decimal | None:
    r"""Return the number in the last \boxed{}, else after the last ####, else the last one in the reply."""
    boxed = BOXED.findall(reply)
    if boxed:
        reply = boxed[-1]
    elif "####" in reply:
        reply = reply.rpartition("####")[2]
    numbers = NUMBER.findall(reply)
    return _decimal(numbers[0] if "####" not in reply and boxed else numbers[-1]) if numbers else None


def value_matches(value: Any, admissible: Sequence[Any]) -> bool:
    """Whether a value is one of BFCL's admissible values (ast_checker.py): text without case and punctuation."""
    return any(_equal(value, candidate) for candidate in admissible)


def call_matches(call: FunctionCall, name: str, admissible: dict[str, list[Any]]) -> bool:
    """Whether a call has BFCL's expected name and arguments; "" among the values makes an argument optional."""
    if _plain_name(call.name) != _plain_name(name) or call.positional or set(call.arguments) - set(admissible):
        return False
    missing = set(admissible) - set(call.arguments)
    if any(admissible[argument] and "" not in admissible[argument] for argument in missing):
        return False
    return all(value_matches(value, admissible[argument]) for argument, value in call.arguments.items())


def _grade_calls(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    return [_grade_call(reference.expected, reply) for reference, reply in pairs]


def _grade_call(expected: dict[str, Any], reply: str) -> Grade:
    """The frozen history expects exactly one call, the recorded one."""
    admissible = {name: [value] for name, value in expected["arguments"].items()}
    return _match_all(reply, [{"name": expected["name"], "arguments": admissible}])


def _grade_answers(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    return [_match_all(reply, reference.expected["calls"]) for reference, reply in pairs]


def _match_all(reply: str, expected: list[dict[str, Any]]) -> Grade:
    """Match calls to expectations in any order, each expectation once."""
    try:
        calls = parse_calls(reply)
    except ValueError as error:
        return Grade(False, False, str(error))
    left = list(expected)
    for call in calls:
        found = next((want for want in left if call_matches(call, want["name"], want["arguments"])), None)
        if found is None:
            return Grade(False, True, f"unexpected call of {call.name}")
        left.remove(found)
    return Grade(not left, True, f"{len(left)} expected calls are missing" if left else "all calls match")


def _grade_numbers(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    return [_grade_number(reference.expected["answer"], reply) for reference, reply in pairs]


def _grade_number(answer: str, reply: str) -> Grade:
    found = final_number(reply)
    if found is None:
        return Grade(False, False, "no number in the reply")
    return Grade(found == _decimal(answer), bool(BOXED.search(reply)), f"answered {found}, expected {answer}")


def _grade_agent_calls(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    """Recorded agents' turns are open-ended: only whether a tool is called at all is compared."""
    return [
        Grade(("[Tool: " in reply) == bool(reference.expected["tools"]), "[Tool: " in reply, "tool call or none")
        for reference, reply in pairs
    ]


def _grade_documents(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    """Parse, then validate in another process: schemas' patterns are untrusted and can run for ever."""
    from draftbench.workloads.schema_validation import validate

    grades: list[Grade | None] = []
    jobs: list[tuple[dict[str, Any], Any]] = []
    for reference, reply in pairs:
        try:
            jobs.append((reference.expected["schema"], orjson.loads(extract_fenced(reply))))
            grades.append(None)
        except orjson.JSONDecodeError as error:
            grades.append(Grade(False, False, f"no JSON: {error.msg}"))
    verdicts = iter(validate(jobs))
    return [grade if grade is not None else Grade(*next(verdicts)) for grade in grades]


def _grade_programs(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    from draftbench.workloads.sandbox import run_humaneval

    return [Grade(*run_humaneval(reference.expected, extract_fenced(reply))) for reference, reply in pairs]


def _no_check(pairs: Sequence[tuple[Reference, str]]) -> list[Grade]:
    return [Grade.not_graded(f"no automatic check for {reference.check}") for reference, _ in pairs]


GRADERS: dict[str, Callable[[Sequence[tuple[Reference, str]]], list[Grade]]] = {
    "bfcl_call": _grade_calls,
    "bfcl_answer": _grade_answers,
    "gsm8k": _grade_numbers,
    "agent_tool_call": _grade_agent_calls,
    "json_schema": _grade_documents,
    "humaneval": _grade_programs,
}


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", "").replace("$", ""))
    except InvalidOperation:
        return None


def _plain_name(name: str) -> str:
    return name.replace(".", "_")


def _equal(value: Any, candidate: Any) -> bool:
    if isinstance(value, str) and isinstance(candidate, str):
        return _standardised(value) == _standardised(candidate)
    if isinstance(value, bool) or isinstance(candidate, bool):
        return value is candidate
    if isinstance(value, list | tuple) and isinstance(candidate, list | tuple):
        return len(value) == len(candidate) and all(map(_equal, value, candidate))
    if isinstance(value, dict) and isinstance(candidate, dict):
        return set(value) == set(candidate) and all(_field_matches(value[key], candidate[key]) for key in value)
    return bool(value == candidate)


def _field_matches(value: Any, candidate: Any) -> bool:
    """Fields of BFCL's dictionaries are lists of admissible values; recorded calls have the plain value."""
    return _equal(value, candidate) or (isinstance(candidate, list) and value_matches(value, candidate))


def _standardised(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')
