"""The tokenizer of a byte-level BPE GGUF file in the format of Hugging Face `tokenizers`."""

from typing import Any

from draftbench.errors import ModelError

_CONTROL_TOKEN = 3
"""Token type CONTROL of the GGUF format: a special token, never made by merging."""


def tokenizer_document(facts: dict[str, Any]) -> dict[str, Any]:
    """tokenizer.json from the GGUF's vocabulary and merges.

    Supports the pre-tokenizer "smollm": digits one by one, then GPT-2's byte-level pattern.
    Raises ModelError for any other, whose token ids would silently be wrong.
    """
    kind = (facts["tokenizer.ggml.model"], facts["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ModelError(
            f"tokenizer {kind[0]!r} with pre-tokenizer {kind[1]!r} is not supported; only 'gpt2' with 'smollm' is"
        )
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    special = [
        index for index, token_type in enumerate(facts["tokenizer.ggml.token_type"]) if token_type == _CONTROL_TOKEN
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special_token(index, tokens[index]) for index in special],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": _bpe_model(tokens, facts["tokenizer.ggml.merges"]),
    }


def _bpe_model(tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": [merge.split(" ") for merge in merges],
    }


def _special_token(index: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def chat_settings(facts: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens and the chat template."""
    tokens = facts["tokenizer.ggml.tokens"]
    named = {name: tokens[facts[f"tokenizer.ggml.{source}_token_id"]] for name, source in _SPECIAL_ROLES.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
        "additional_special_tokens": [named["bos_token"], named["eos_token"]],
        "chat_template": facts["tokenizer.chat_template"],
        **named,
    }


_SPECIAL_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
