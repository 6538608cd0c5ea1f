"""BFCL's textual calls."""

import pytest

from draftbench.workloads.bfcl_calls import FunctionCall, parse_call, parse_calls


def test_a_list_of_calls_is_read() -> None:
    """Names and literal arguments come out as Python values."""
    assert parse_calls("[mv(source='a b', n=-2), post(tags=['#x'], ok=True)]") == [
        FunctionCall("mv", {"source": "a b", "n": -2}),
        FunctionCall("post", {"tags": ["#x"], "ok": True}),
    ]


@pytest.mark.parametrize("text", ["ls(a=True)", "[ls(a=True)", "`[ls(a=True)]`", "\n[ls(a=True)]\n"])
def test_brackets_and_fences_are_optional(text: str) -> None:
    """BFCL's decoder strips fences and adds missing brackets."""
    assert parse_calls(text) == [FunctionCall("ls", {"a": True})]


def test_positional_arguments_get_their_names() -> None:
    """Values without a name take the function's parameters in order."""
    call = parse_call("sort('report.txt', reverse=True)")
    assert call.named(["file_name", "reverse"]).arguments == {"file_name": "report.txt", "reverse": True}
    with pytest.raises(ValueError, match="takes 0 arguments"):
        call.named([])


def test_text_form_round_trips() -> None:
    """A call written out is read back as the same call."""
    call = FunctionCall("echo", {"content": 'it\'s "quoted"\n', "n": 1.5})
    assert parse_call(str(call)) == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I will list the files.",
        "[]",
        "[1, 2]",
        "[ls(a=other())]",
        "[ls(**{'a': 1})]",
        "[__import__('os').system('true')]",
        "[(lambda: 1)()]",
        "[ls(a=x)]",
        "[" * 5000,
        "ls(a=True",
        "[ls(a='\x00')]",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Text that is no list of calls with literal arguments is a ValueError, whatever it would do as code."""
    with pytest.raises(ValueError, match=r"."):
        parse_calls(text)
