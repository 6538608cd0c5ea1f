"""BFCL v4 multi-turn sessions (Berkeley Function Calling Leaderboard, package bfcl-eval, Apache-2.0).

The history is frozen: user turns and ground-truth calls of the dataset, with results from BFCL's own simulators.
Every ground-truth call is a request of its own, and each user turn ends with the request for the closing reply,
for which the dataset has no text: none stands in the later history, and none is expected.
"""

import copy
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from draftbench.errors import WorkloadError
from draftbench.workloads import bfcl_simulators
from draftbench.workloads.bfcl_calls import FunctionCall, parse_call
from draftbench.workloads.items import Expectation, Message, SourceItem, SourceRequest
from draftbench.workloads.packages import BFCL_EVAL, MPMATH, fetch_wheel, read_member
from draftbench.workloads.storage import write_atomically

DATA = "bfcl_eval/data/"
SIMULATION_TIMEOUT_S = 300
LONG_CONTEXT = "multi_turn_long_context"

DOCUMENT_FILES = {
    name: f"{DATA}multi_turn_func_doc/{module}.json" for name, module in bfcl_simulators.SIMULATOR_MODULES.items()
}

JSON_SCHEMA_TYPES = {
    "dict": "object", "float": "number", "double": "number", "tuple": "array", "list": "array", "any": "string",
    "bool": "boolean", "long": "integer",
}  # fmt: skip
"""BFCL's type names where they differ from JSON Schema's (its GORILLA_TO_OPENAPI)."""


def multi_turn_items(cache_dir: Path, category: str = "multi_turn_base") -> list[SourceItem]:
    """Return all sessions of a multi-turn category, in the dataset's order."""
    wheel = fetch_wheel(BFCL_EVAL, cache_dir)
    documents = {name: _json_lines(wheel, file) for name, file in DOCUMENT_FILES.items()}
    entries = _json_lines(wheel, f"{DATA}BFCL_v4_{category}.json")
    answers = {
        entry["id"]: entry["ground_truth"]
        for entry in _json_lines(wheel, f"{DATA}possible_answer/BFCL_v4_{category}.json")
    }
    tools = [_tool_documents(entry, documents) for entry in entries]
    calls = [_named_calls(answers[entry["id"]], tool) for entry, tool in zip(entries, tools, strict=True)]
    sessions = [_session(*parts, category) for parts in zip(entries, tools, calls, strict=True)]
    results = tool_results(sessions, cache_dir)
    return [_item(*parts) for parts in zip(entries, tools, calls, results, strict=True)]


def tool_results(sessions: list[dict[str, Any]], cache_dir: Path) -> list[list[str]]:
    """Return the simulators' answers to each session's calls; kept under `cache_dir` by content."""
    wheels = [fetch_wheel(BFCL_EVAL, cache_dir), fetch_wheel(MPMATH, cache_dir)]
    program = Path(bfcl_simulators.__file__)
    key = hashlib.sha256(orjson.dumps(sessions))
    for part in (BFCL_EVAL.sha256, MPMATH.sha256, program.read_text(), str(sys.version_info[:2])):
        key.update(part.encode())
    kept = cache_dir / "workloads" / f"bfcl-results-{key.hexdigest()[:16]}.json"
    if not kept.exists():
        write_atomically(kept, orjson.dumps(_simulate(sessions, program, wheels)))
    results: list[list[str]] = orjson.loads(kept.read_bytes())
    return results


def openai_tool(document: dict[str, Any]) -> dict[str, Any]:
    """Return a BFCL function document as an OpenAI tool.

    As in BFCL, the response schema joins the description and dots in names, which OpenAI forbids, become "_".
    """
    function = copy.deepcopy(document)
    function["name"] = function["name"].replace(".", "_")
    response = function.pop("response", None)
    if response is not None:
        schema = orjson.dumps(response).decode()
        function["description"] += f" The response field has the following schema: {schema}"
    function["parameters"] = _json_schema_types(function["parameters"])
    return {"type": "function", "function": function}


def _simulate(sessions: list[dict[str, Any]], program: Path, wheels: list[Path]) -> list[list[str]]:
    """Run the simulators without site-packages: what they import is the pinned wheels and nothing else."""
    command = [sys.executable, "-S", "-s", "-P", str(program), *map(str, wheels)]
    environment = {"PATH": os.environ.get("PATH", ""), "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    request = b"".join(orjson.dumps(session) + b"\n" for session in sessions)
    try:
        finished = subprocess.run(
            command, input=request, capture_output=True, env=environment, timeout=SIMULATION_TIMEOUT_S, check=True
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"BFCL's simulators did not answer within {SIMULATION_TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as error:
        last_line = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise WorkloadError(f"BFCL's simulators failed: {last_line}") from None
    return [orjson.loads(line) for line in finished.stdout.splitlines()]


def _session(
    entry: dict[str, Any], tools: list[dict[str, Any]], calls: list[list[FunctionCall]], category: str
) -> dict[str, Any]:
    return {
        "item_id": entry["id"],
        "initial_config": entry["initial_config"],
        "involved_classes": entry["involved_classes"],
        "long_context": category == LONG_CONTEXT,
        "allowed": [document["name"] for document in tools],
        "calls": [{"name": call.name, "arguments": call.arguments} for turn in calls for call in turn],
    }


def _tool_documents(entry: dict[str, Any], documents: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    excluded = entry.get("excluded_function", [])
    return [
        document
        for name in entry["involved_classes"]
        for document in documents[name]
        if document["name"] not in excluded
    ]


def _named_calls(turns: list[list[str]], tools: list[dict[str, Any]]) -> list[list[FunctionCall]]:
    parameters = {document["name"]: list(document["parameters"]["properties"]) for document in tools}
    return [[_named_call(text, parameters) for text in turn] for turn in turns]


def _named_call(text: str, parameters: dict[str, list[str]]) -> FunctionCall:
    call = parse_call(text)
    return call.named(parameters.get(call.name, []))


def _item(
    entry: dict[str, Any], tools: list[dict[str, Any]], calls: list[list[FunctionCall]], results: list[str]
) -> SourceItem:
    requests: list[SourceRequest] = []
    history: list[Message] = []
    answers = iter(results)
    for question, turn_calls in zip(entry["question"], calls, strict=True):
        history.extend(question)
        for call in turn_calls:
            requests.append(SourceRequest(tuple(history), _expected_call(call)))
            history.extend(_exchange(call, next(answers), len(requests)))
        requests.append(SourceRequest(tuple(history)))
    return SourceItem(entry["id"], tuple(requests), tuple(map(openai_tool, tools)), tuple(tools))


def _expected_call(call: FunctionCall) -> Expectation:
    return Expectation("bfcl_call", {"name": call.name, "arguments": call.arguments}, f"[{call}]")


def _exchange(call: FunctionCall, result: str, number: int) -> Iterable[Message]:
    """Return the assistant's call and its result; ids of nine letters and digits satisfy every known template."""
    call_id = f"call{number:05d}"
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    yield {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    yield {"role": "tool", "tool_call_id": call_id, "name": call.name, "content": result}


def _json_schema_types(schema: Any) -> Any:
    """Return `schema` with BFCL's type names replaced; a property that is called "type" is left alone."""
    if isinstance(schema, list):
        return [_json_schema_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: _json_schema_types(value) for key, value in schema.items()}
    if isinstance(converted.get("type"), str):
        converted["type"] = JSON_SCHEMA_TYPES.get(converted["type"], converted["type"])
    return converted


def _json_lines(wheel: Path, member: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in read_member(wheel, member).splitlines() if line.strip()]
