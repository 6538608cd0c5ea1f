"""What a `/generate` body asks for, checked against SGLang's rules (0.5.17 to 0.5.23)."""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftbench.engine.interface import GenerationRequest, SamplingSettings

DEFAULT_MAX_NEW_TOKENS = 128  # SGLang's SamplingParams
MAX_INPUT_TOP_LOGPROBS = 2  # the engine keeps the two best candidates of a prompt position

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

UNSUPPORTED_FIELDS = (
    "input_embeds", "image_data", "video_data", "audio_data", "session_params", "lora_path", "token_ids_logprob",
    "custom_logit_processor", "return_hidden_states", "return_routed_experts", "return_text_in_logprobs",
    "return_sampling_mask", "positional_embed_overrides",
)  # fmt: skip


class BadRequestError(Exception):
    """A request that gets an HTTP error; `body` is its JSON, in SGLang's form."""

    def __init__(self, message: str, status: int = 400, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.body: Mapping[str, Any] = {"error": {"message": message}} if body is None else body


@dataclass(frozen=True)
class PromptRequest:
    """One prompt of a body; `text` or `input_ids`, never both."""

    request_id: str
    text: str | None
    input_ids: tuple[int, ...] | None
    sampling: SamplingSettings
    max_new_tokens_given: bool
    stop_strings: tuple[str, ...]
    skip_special_tokens: bool
    no_stop_trim: bool
    return_logprob: bool
    logprob_start: int
    top_logprobs: int

    def __post_init__(self) -> None:
        assert (self.text is None) != (self.input_ids is None)

    def engine_request(self, input_ids: Sequence[int], context_length: int) -> GenerationRequest:
        """What the engine is asked; an unset `max_new_tokens` is cut to the room that is left."""
        room = context_length - len(input_ids)
        sampling = replace(self.sampling, max_new_tokens=min(self.sampling.max_new_tokens, room))
        scores_input = self.return_logprob and 0 <= self.logprob_start < len(input_ids) - 1
        return GenerationRequest(
            request_id=self.request_id,
            input_ids=tuple(input_ids),
            sampling=sampling,
            return_top_logprobs=max(1, self.top_logprobs) if self.return_logprob else 0,
            return_input_logprobs=scores_input,
            input_logprobs_start=self.logprob_start + 1 if scores_input else 0,
        )


@dataclass(frozen=True)
class GenerateBody:
    """A parsed body: its prompts, and whether the reply is a list and a stream."""

    prompts: tuple[PromptRequest, ...]
    is_batch: bool
    stream: bool


def parse_generate(body: object) -> GenerateBody:
    """The body of `/generate`; raises BadRequestError with SGLang's status and message."""
    if not isinstance(body, dict):
        raise BadRequestError("Request body must be a JSON object.")
    for name in UNSUPPORTED_FIELDS:
        if body.get(name):
            raise BadRequestError(f"{name} is not supported by this server.")
    texts, ids = body.get("text"), body.get("input_ids")
    if (texts is None) == (ids is None):
        raise BadRequestError("Either text, input_ids or input_embeds should be provided.")
    is_batch = _is_batch(texts, ids)
    count = len(texts or ids or ()) if is_batch else 1
    if count == 0:
        raise BadRequestError("The batch is empty.")
    prompts = tuple(_prompt(body, index, is_batch) for index in range(count))
    if len({prompt.request_id for prompt in prompts}) < count:
        raise BadRequestError("Duplicate request IDs within a batch.")
    return GenerateBody(prompts, is_batch, bool(body.get("stream", False)))


def check_length(prompt: PromptRequest, prompt_tokens: int, context_length: int) -> None:
    """SGLang's two length rules; an unset `max_new_tokens` is never refused, only cut."""
    if prompt_tokens >= context_length:
        raise BadRequestError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context_length} tokens)."
        )
    total = prompt_tokens + prompt.sampling.max_new_tokens
    if prompt.max_new_tokens_given and total > context_length:
        raise BadRequestError(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens. "
            f"You requested a total of {total} tokens: {prompt_tokens} tokens from the input messages and "
            f"{prompt.sampling.max_new_tokens} tokens for the completion. Please reduce the number of tokens in the "
            f"input messages or the completion to fit within the limit."
        )


def check_logprobs(prompt: PromptRequest, prompt_tokens: int, method: str) -> None:
    """Log-probabilities come from AR alone; SGLang refuses them for a drafting server in these words."""
    if not prompt.return_logprob:
        return
    if method != "AR":
        raise BadRequestError(f"{method} speculative decoding does not support return_logprob yet.")
    if prompt.logprob_start >= prompt_tokens:
        raise BadRequestError(
            f"logprob_start_len={prompt.logprob_start} is higher than the number of input tokens {prompt_tokens}. "
            "Please use a smaller logprob_start_len."
        )
    if prompt.logprob_start >= 0 and prompt.top_logprobs > MAX_INPUT_TOP_LOGPROBS:
        raise BadRequestError(
            f"top_logprobs_num for input tokens is at most {MAX_INPUT_TOP_LOGPROBS} on this server, "
            f"got {prompt.top_logprobs}."
        )


def check_ids(input_ids: Sequence[int], vocabulary: int) -> None:
    """Ids outside the vocabulary are refused before they reach the embedding."""
    if not input_ids:
        raise BadRequestError("The prompt is empty.")
    if max(input_ids) >= vocabulary or min(input_ids) < 0:
        raise BadRequestError(f"The input_ids contain values outside the vocabulary (0 to {vocabulary - 1}).")


def _is_batch(texts: object, ids: object) -> bool:
    """Whether the prompt field is a list of prompts; a wrong type is refused."""
    if texts is not None:
        if isinstance(texts, str):
            return False
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return True
        raise BadRequestError("text must be a string or a list of strings.")
    if isinstance(ids, list) and all(type(token) is int for token in ids):
        return False
    if isinstance(ids, list) and all(isinstance(row, list) and all(type(token) is int for token in row) for row in ids):
        return True
    raise BadRequestError("input_ids must be a list of integers or a list of such lists.")


def _prompt(body: Mapping[str, Any], index: int, is_batch: bool) -> PromptRequest:
    """The prompt at one index of the body."""
    text, ids = _at(body.get("text"), index, is_batch), _at(body.get("input_ids"), index, is_batch)
    parameters = body.get("sampling_params") or {}
    if isinstance(parameters, list):
        parameters = _item("sampling_params", parameters, index, is_batch)
    sampling = parse_sampling(parameters)
    return PromptRequest(
        request_id=_request_id(body.get("rid"), index, is_batch),
        text=text,
        input_ids=None if ids is None else tuple(ids),
        sampling=sampling,
        max_new_tokens_given=parameters.get("max_new_tokens") is not None,
        stop_strings=_stop_strings(parameters.get("stop")),
        skip_special_tokens=bool(parameters.get("skip_special_tokens", True)),
        no_stop_trim=bool(parameters.get("no_stop_trim", False)),
        return_logprob=bool(_setting(body, "return_logprob", False, index, is_batch)),
        logprob_start=_integer("logprob_start_len", _setting(body, "logprob_start_len", -1, index, is_batch)),
        top_logprobs=_integer("top_logprobs_num", _setting(body, "top_logprobs_num", 0, index, is_batch)),
    )


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
    top_k = _integer("top_k", _given(parameters, "top_k", -1))
    if top_k < 1 and top_k != -1:
        raise BadRequestError(f"top_k must be -1 (disable) or at least 1, got {top_k}.")
    max_new_tokens = _integer("max_new_tokens", _given(parameters, "max_new_tokens", DEFAULT_MAX_NEW_TOKENS))
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
        seed=None if seed is None else _integer("sampling_seed", seed),
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


def _request_id(given: object, index: int, is_batch: bool) -> str:
    """The caller's `rid`; a single one heads the ids of a batch, as in SGLang."""
    if given is None:
        return uuid.uuid4().hex
    if isinstance(given, str):
        return f"{given}_{index}" if is_batch else given
    if isinstance(given, list):
        return str(_item("rid", given, index, is_batch))
    raise BadRequestError("rid must be a string or a list of strings.")


def _at(values: Any, index: int, is_batch: bool) -> Any:
    """One prompt's own value of a field that is a list in a batch."""
    return values[index] if is_batch and values is not None else values


def _setting(body: Mapping[str, Any], name: str, default: Any, index: int, is_batch: bool) -> Any:
    """A field that is either one value for all prompts or a list with one each."""
    value = body.get(name)
    if value is None:
        return default
    return _item(name, value, index, is_batch) if isinstance(value, list) else value


def _item(name: str, values: Sequence[Any], index: int, is_batch: bool) -> Any:
    """One prompt's value out of a list, which only a batch long enough may have."""
    if not is_batch or index >= len(values):
        raise BadRequestError(f"{name} has {len(values)} entries, which does not match the prompts.")
    return values[index]


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


def _integer(name: str, value: object) -> int:
    """A value that must be a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequestError(f"{name} must be an integer, got {value!r}.")
    return value


def _stop_strings(value: object) -> tuple[str, ...]:
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
