"""Bodies of the small endpoints and of errors, in SGLang's form."""

from collections.abc import Mapping, Sequence
from typing import Any

FLUSHED_TEXT = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
FLUSH_REFUSED_TEXT = "Flush cache failed.\n"


def stream_error(message: str, status: int) -> dict[str, Any]:
    """A refused stream: SGLang answers 200 and sends the error as the only event."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": status, "retryable": False}}


def bad_json_error(detail: str) -> dict[str, Any]:
    """The body for a request that is no JSON."""
    return {
        "object": "error",
        "message": f"1 validation error: JSON decode error ({detail})",
        "type": "Bad Request",
        "param": None,
        "code": 400,
    }


def models_list(name: str, context_length: int, created: int) -> dict[str, Any]:
    """`/v1/models`."""
    card = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": context_length,
    }
    return {"object": "list", "data": [card]}


def model_info(flags: Mapping[str, Any], model_type: str | None, architectures: Sequence[str]) -> dict[str, Any]:
    """`/model_info`."""
    return {
        "model_path": flags["model_path"],
        "served_model_name": flags["served_model_name"],
        "tokenizer_path": flags["tokenizer_path"],
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": model_type,
        "architectures": list(architectures),
    }
