"""BFCL's textual function calls, `[name(argument=value), …]`: read by `ast`, never evaluated."""

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FunctionCall:
    """One call; `positional` are values given without a name."""

    name: str
    arguments: dict[str, Any]
    positional: tuple[Any, ...] = ()

    def named(self, parameters: list[str]) -> "FunctionCall":
        """Return the call with positional values under the names of `parameters`, in order."""
        if len(self.positional) > len(parameters):
            raise ValueError(f"{self.name} takes {len(parameters)} arguments, not {len(self.positional)}")
        names = parameters[: len(self.positional)]
        return FunctionCall(self.name, dict(zip(names, self.positional, strict=True)) | self.arguments)

    def __str__(self) -> str:
        values = [repr(value) for value in self.positional]
        values += [f"{name}={value!r}" for name, value in self.arguments.items()]
        return f"{self.name}({', '.join(values)})"


def parse_call(text: str) -> FunctionCall:
    """Return the single call that `text` is; ValueError where it is anything else."""
    calls = parse_calls(text)
    if len(calls) != 1:
        raise ValueError(f"{len(calls)} calls where one was due")
    return calls[0]


def parse_calls(text: str) -> list[FunctionCall]:
    """Return the calls in a reply of BFCL's form, with or without the brackets, as BFCL's decoder reads it.

    Raises ValueError where the text is not made of calls with literal arguments.
    """
    stripped = text.strip("`\n ")
    if not stripped.startswith("["):
        stripped = "[" + stripped
    if not stripped.endswith("]"):
        stripped += "]"
    try:
        tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"no Python call syntax: {error}") from None
    if not isinstance(tree, ast.List) or not tree.elts:
        raise ValueError("no list of calls")
    return [_read_call(node) for node in tree.elts]


def _read_call(node: ast.expr) -> FunctionCall:
    if not isinstance(node, ast.Call):
        raise ValueError(f"{ast.unparse(node)} is no call")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("arguments cannot be unpacked with **")
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    return FunctionCall(_dotted_name(node.func), arguments, tuple(ast.literal_eval(value) for value in node.args))


def _dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    raise ValueError(f"{ast.unparse(node)} is no function name")
