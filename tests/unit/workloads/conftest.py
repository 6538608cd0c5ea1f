"""A target folder whose tokens are bytes, and the repository's wheel cache."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

REPOSITORY = Path(__file__).parents[3]

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The chat template of SmolLM2-135M-Instruct: it ignores tools and tool calls."""

CHATML_WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""A template with tools, after the pattern of Qwen's."""


def write_target(folder: Path, template: str | None) -> Path:
    """Write a tokenizer whose tokens are single bytes, two special tokens apart, and a chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder without tools in its template."""
    return write_target(tmp_path_factory.mktemp("target"), SMOLLM2_TEMPLATE)


@pytest.fixture(scope="session")
def tool_target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with tools in its template."""
    return write_target(tmp_path_factory.mktemp("tool-target"), CHATML_WITH_TOOLS)


@pytest.fixture(scope="session")
def wheel_cache() -> Path:
    """The repository's cache; wheels that are not in it yet come from PyPI (5 MB, once)."""
    return REPOSITORY / ".cache"
