"""Sampling parameters of a `/generate` body: SGLang's names, defaults, ranges and messages."""

import math
from collections.abc import Mapping
from typing import Any

from draftbench.engine.interface import SamplingSettings

DEFAULT_MAX_NEW_TOKENS = 128  # SGLang's SamplingParams

# SGLang 0.5.23's sampling parameters in its own order; its refusal of an unknown one lists them.
SAMPLING_FIELDS = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip

# Parameters that exist in SGLang but not here, with the value that asks for nothing.
NEUTRAL_SAMPLING: Mapping[str, Any] = {
    "stop_regex": None, "min_p": 0, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1,
    "min_new_tokens": 0, "n": 1, "json_schema": None, "regex": None, "ebnf": None, "structural_tag": None,
    "stream_interval": 1, "logit_bias": None, "custom_params": None, "beam_width": 1, "watermark": None,
    "choice": None,
}  # fmt: skip


class BadRequestError(Exception):
    """A request that gets an HTTP error; `body` is its JSON, in SGLang's form."""

    def __init__(self, message: str, status: int = 400, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.body: Mapping[str, Any] = {"error": {"message": message}} if body is None else body


def parse_sampling(parameters: object) -> SamplingSettings:
    """The sampling parameters, with SGLang's defaults, ranges and messages."""
    if not isinstance(parameters, dict):
        raise BadRequestError("sampling_params must be a JSON object.")
    _check_sampling_names(parameters)
    temperature = _number("temperature", parameters, 1.0)
    if not math.isfinite(temperature) or temperature < 0:
        raise BadRequestError(f"temperature must be a non-negative finite number, got {parameters['temperature']}.")
    top_p = _number("top_p", parameters, 1.0)
    if not 0 < top_p <= 1:
        raise BadRequestError(f"top_p must be in (0, 1], got {top_p}.")
    top_k = integer("top_k", _given(parameters, "top_k", -1))
    if top_k < 1 and top_k != -1:
        raise BadRequestError(f"top_k must be -1 (disable) or at least 1, got {top_k}.")
    max_new_tokens = integer("max_new_tokens", _given(parameters, "max_new_tokens", DEFAULT_MAX_NEW_TOKENS))
    if max_new_tokens < 0:
        raise BadRequestError(f"max_new_tokens must be at least 0, got {max_new_tokens}.")
    seed = parameters.get("sampling_seed")
    return SamplingSettings(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_new_tokens=max_new_tokens,
        stop_token_ids=_stop_token_ids(parameters.get("stop_token_ids")),
        ignore_eos=bool(parameters.get("ignore_eos", False)),
        seed=None if seed is None else integer("sampling_seed", seed),
    )


def _check_sampling_names(parameters: Mapping[str, Any]) -> None:
    """Unknown names get 0.5.23's refusal; known ones that this server lacks must ask for nothing."""
    for name, value in parameters.items():
        if name not in SAMPLING_FIELDS:
            expected = ", ".join(f"`{field}`" for field in SAMPLING_FIELDS)
            message = f"unknown field `{name}`, expected one of {expected}"
            raise BadRequestError(message, body={"error": message})
        if name in NEUTRAL_SAMPLING and value is not None and value != NEUTRAL_SAMPLING[name]:
            raise BadRequestError(f"{name} is not supported by this server.")


def _given(parameters: Mapping[str, Any], name: str, default: Any) -> Any:
    """A parameter's value; null counts as left out."""
    value = parameters.get(name)
    return default if value is None else value


def _number(name: str, parameters: Mapping[str, Any], default: float) -> float:
    """A parameter as a float."""
    value = _given(parameters, name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequestError(f"{name} must be a number, got {value!r}.")
    return float(value)


def integer(name: str, value: object) -> int:
    """A value that must be a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequestError(f"{name} must be an integer, got {value!r}.")
    return value


def stop_strings(value: object) -> tuple[str, ...]:
    """The stop strings of one prompt."""
    strings = [value] if isinstance(value, str) else value or []
    if not isinstance(strings, list) or not all(isinstance(text, str) for text in strings):
        raise BadRequestError("stop must be a string or a list of strings.")
    return tuple(text for text in strings if text)


def _stop_token_ids(value: object) -> frozenset[int]:
    """The extra stop ids of one prompt."""
    ids = value or []
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise BadRequestError("stop_token_ids must be a list of integers.")
    return frozenset(ids)
