"""Questions to a server over loopback: is it up, does it really generate, is it the planned one."""

import http.client
import json
from collections.abc import Mapping
from typing import Any

from draftbench.errors import ServerError
from draftbench.servers.failure_classes import FailureClass


def request_json(port: int, method: str, path: str, body: object = None, timeout_s: float = 5.0) -> tuple[int, Any]:
    """Send one request to 127.0.0.1; the status and the decoded reply, which is text where it is no JSON.

    No proxy is asked, whatever the environment says. Raises OSError or HTTPException when there is no answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"} if payload else {})
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        status = response.status
    finally:
        connection.close()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def is_healthy(port: int, timeout_s: float = 5.0) -> bool:
    """Whether /health answers with 200."""
    try:
        return request_json(port, "GET", "/health", timeout_s=timeout_s)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def generate(port: int, token_ids: tuple[int, ...], max_new_tokens: int, timeout_s: float) -> tuple[int, Any]:
    """Ask /generate for exactly that many greedy tokens. Raises OSError or HTTPException when there is no answer."""
    sampling = {"temperature": 0.0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
    body = {"input_ids": list(token_ids), "sampling_params": sampling}
    return request_json(port, "POST", "/generate", body, timeout_s)


def answers(port: int, token_ids: tuple[int, ...], timeout_s: float) -> bool:
    """Whether the server generates one token, or refuses to, within the timeout."""
    try:
        generate(port, token_ids, 1, timeout_s)
    except (OSError, http.client.HTTPException):
        return False
    return True


def probe_generation(port: int, token_ids: tuple[int, ...], expected_tokens: int, timeout_s: float) -> str | None:
    """Let the server generate for real; None when the tokens came, else why it is not ready yet.

    Raises ServerError when it answers with another number of tokens, which waiting will not cure.
    """
    try:
        status, reply = generate(port, token_ids, expected_tokens, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        return f"/generate gave no answer: {error!r}"
    if status != 200 or not isinstance(reply, dict):
        return f"/generate answered {status}: {str(reply)[:200]}"
    tokens = (reply.get("meta_info") or {}).get("completion_tokens")
    if tokens != expected_tokens:
        raise ServerError(f"/generate gave {tokens} tokens, not the {expected_tokens} asked for", FailureClass.CRASH)
    return None


def fetch_server_info(port: int, timeout_s: float = 10.0) -> dict[str, Any]:
    """Read /server_info. Raises ServerError when there is none."""
    try:
        status, reply = request_json(port, "GET", "/server_info", timeout_s=timeout_s)
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(f"/server_info gave no answer: {error!r}", FailureClass.CRASH) from error
    if status != 200 or not isinstance(reply, dict):
        raise ServerError(f"/server_info answered {status}: {str(reply)[:200]}", FailureClass.IDENTITY)
    return reply


def identity_differences(info: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """List what differs between the server's word and the plan; a dotted key names a nested value."""
    differences = []
    for key, wanted in expected.items():
        found = _nested(info, key)
        if found != wanted:
            said = "missing" if found is _MISSING else repr(found)
            differences.append(f"{key} is {said}, planned {wanted!r}")
    return differences


def check_identity(port: int, session: str, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Read /server_info and hold it against the plan. Raises ServerError that names each difference."""
    info = fetch_server_info(port)
    differences = identity_differences(info, expected)
    if differences:
        raise ServerError(
            f"the server of {session} is not the planned one: {'; '.join(differences)}", FailureClass.IDENTITY
        )
    return info


_MISSING = object()


def _nested(info: Mapping[str, Any], key: str) -> Any:
    if key in info:
        return info[key]
    value: Any = info
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value
