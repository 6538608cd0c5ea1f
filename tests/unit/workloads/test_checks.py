"""Grades of replies; every expectation is worked out by hand."""

from decimal import Decimal

import pytest

from draftbench.workloads.checks import extract_fenced, final_number, grade_replies
from draftbench.workloads.schema import Reference


def reference(check: str, **expected: object) -> Reference:
    """A reference of one check."""
    return Reference(session_id="s", turn=0, item_id="i", check=check, expected=expected)


def grade(check: str, reply: str, **expected: object) -> tuple[bool | None, bool | None]:
    """Grade one reply: (passed, well formed)."""
    (found,) = grade_replies([(reference(check, **expected), reply)])
    return found.passed, found.well_formed


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("[mv(source='a.txt', n=2)]", (True, True)),
        ("mv(n=2.0, source='A.TXT')", (True, True)),
        ("[mv(source='a.txt', n=3)]", (False, True)),
        ("[mv(source='a.txt')]", (False, True)),
        ("[mv(source='a.txt', n=2, force=True)]", (False, True)),
        ("[mv('a.txt', 2)]", (False, True)),
        ("[cp(source='a.txt', n=2)]", (False, True)),
        ("[mv(source='a.txt', n=2), mv(source='a.txt', n=2)]", (False, True)),
        ("I would move the file.", (False, False)),
        ("[mv(source=open('/etc/passwd').read(), n=2)]", (False, False)),
    ],
)
def test_recorded_call(reply: str, expected: tuple[bool, bool]) -> None:
    """Name and arguments of the one recorded call, text compared as BFCL does."""
    assert grade("bfcl_call", reply, name="mv", arguments={"source": "a.txt", "n": 2}) == expected


@pytest.mark.parametrize(
    ("reply", "passed"),
    [
        ("[f(a=1), g(b='New York, NY')]", True),
        ("[g(b='new york NY'), f(a=1)]", True),
        ("[f(a=1, c='x'), g(b='NYC')]", True),
        ("[f(a=1, c='y'), g(b='NYC')]", False),
        ("[f(a=1)]", False),
        ("[f(a=True), g(b='NYC')]", False),
        ("[f(a=1), g(b='NYC', d={'k': 2, 'l': [1, 'X']})]", True),
        ("[f(a=1), g(b='NYC', d={'k': 3, 'l': [1, 'x']})]", False),
    ],
)
def test_admissible_calls(reply: str, passed: bool) -> None:
    """Any order, any admissible value; an empty string among the values makes the argument optional."""
    calls = [
        {"name": "f", "arguments": {"a": [1], "c": ["x", ""]}},
        {"name": "g", "arguments": {"b": ["New York, NY", "NYC"], "d": ["", {"k": [1, 2], "l": [[1, "x"]]}]}},
    ]
    assert grade("bfcl_answer", reply, calls=calls)[0] is passed


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("So 3 + 4 = 7, thus \\boxed{7}.", "7"),
        ("first \\boxed{1}, no: \\boxed{1,234.50}", "1234.50"),
        ("\\boxed{$18}", "18"),
        ("2 apples and 3 pears\n#### 5", "5"),
        ("He has 12 and she has -4", "-4"),
        ("no digits", None),
        ("\\boxed{x}", None),
    ],
)
def test_final_number(reply: str, number: str | None) -> None:
    """The box goes before ####, and that before the last number."""
    assert final_number(reply) == (None if number is None else Decimal(number))


def test_math_answers_compare_as_numbers() -> None:
    """18.00 is 18; the box is the asked-for form."""
    assert grade("gsm8k", "\\boxed{18.00}", answer="18") == (True, True)
    assert grade("gsm8k", "It is 18", answer="18") == (True, False)
    assert grade("gsm8k", "\\boxed{17}", answer="18") == (False, True)
    assert grade("gsm8k", "none", answer="18") == (False, False)


DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {
    "n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}, "d": {"type": "string", "format": "date"}},
    "required": ["n"]}  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"n": 1}', (True, True)),
        ('Here:\n```json\n{"n": 1}\n```\nDone.', (True, True)),
        ('{"n": 0}', (False, True)),
        ('{"n": 1, "d": "2026-02-30"}', (False, True)),
        ("{}", (False, True)),
        ("[]", (False, True)),
        ('{"n": 1', (False, False)),
        ("", (False, False)),
        ('{"n": NaN}', (False, False)),
    ],
)
def test_documents_under_their_own_draft(reply: str, expected: tuple[bool, bool]) -> None:
    """exclusiveMinimum as a flag is draft 4's; formats are checked."""
    assert grade("json_schema", reply, schema=DRAFT_4) == expected


def test_hostile_schemas_end_in_records() -> None:
    """A catastrophic pattern, an endless reference and an unknown one are not graded, and the next is."""
    endless = {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}
    backtracking = {"properties": {"s": {"pattern": "^(a+)+$"}}}
    schemas = [backtracking, endless, {"$ref": "#/nowhere"}, {"type": "object"}]
    reply = '{"s": "' + "a" * 40 + '!"}'
    import draftbench.workloads.schema_validation as validation

    verdicts = validation.validate([(schema, {"s": "a" * 40 + "!"}) for schema in schemas], time_limit_s=1)
    assert [verdict[0] for verdict in verdicts] == [None, None, None, True]
    assert verdicts[0][2] == "validation took more than 1 s"
    assert grade("json_schema", reply, schema={"type": "object"}) == (True, True)


def test_order_is_kept_and_unknown_checks_are_not_graded() -> None:
    """Grades come back in the order of the pairs, whatever the checks."""
    pairs = [
        (reference("gsm8k", answer="1"), "1"),
        (reference("recorded_reply"), "x"),
        (reference("gsm8k", answer="1"), "2"),
        (reference("agent_tool_call", tools=["exec"]), "[Tool: exec({})]"),
    ]
    assert [found.passed for found in grade_replies(pairs)] == [True, None, False, True]
    assert grade_replies(pairs)[1].reason == "no automatic check for recorded_reply"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("a\n```\nx = 1\n```\nb\n```\ny\n```", "x = 1"),
        ("```json\n{}", "{}"),
        ("    return x\n", "    return x"),
    ],
)
def test_first_fenced_block(reply: str, code: str) -> None:
    """Cut-off fences end with the reply; without a fence the reply is the code."""
    assert extract_fenced(reply) == code
