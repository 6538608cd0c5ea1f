"""What a `/generate` body asks for, checked against SGLang's rules (0.5.17 to 0.5.23)."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftbench.engine.http_sampling import BadRequestError, integer, parse_sampling, stop_strings
from draftbench.engine.interface import GenerationRequest, SamplingSettings

MAX_INPUT_TOP_LOGPROBS = 2  # the engine keeps the two best candidates of a prompt position

UNSUPPORTED_FIELDS = (
    "input_embeds", "image_data", "video_data", "audio_data", "session_params", "lora_path", "token_ids_logprob",
    "custom_logit_processor", "return_hidden_states", "return_routed_experts", "return_text_in_logprobs",
    "return_sampling_mask", "positional_embed_overrides",
)  # fmt: skip


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
        stop_strings=stop_strings(parameters.get("stop")),
        skip_special_tokens=bool(parameters.get("skip_special_tokens", True)),
        no_stop_trim=bool(parameters.get("no_stop_trim", False)),
        return_logprob=bool(_setting(body, "return_logprob", False, index, is_batch)),
        logprob_start=integer("logprob_start_len", _setting(body, "logprob_start_len", -1, index, is_batch)),
        top_logprobs=integer("top_logprobs_num", _setting(body, "top_logprobs_num", 0, index, is_batch)),
    )


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
