"""The target's own chat template and tokenizer: chat messages in, token ids out.

Follows the conventions of transformers' `apply_chat_template` (chat_template_utils.py) without needing it.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from draftbench.errors import WorkloadError
from draftbench.workloads.items import Message
from draftbench.workloads.schema import ToolFormat

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
THINKING_SWITCH = "enable_thinking"
PINNED_NOW = datetime(2026, 1, 1)
"""What templates that print today's date are given: prompts do not depend on the day they are built."""

PIECES_KEPT = 20_000
"""Distinct pieces of prompts whose lengths are remembered."""

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class _GenerationBlock(jinja2.ext.Extension):
    """Accepts transformers' {% generation %} marks, which only training needs, as if they were not there."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the block's body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True)
class TargetTemplate:
    """Chat template, special tokens and tokenizer of one target folder."""

    source: str
    special_tokens: dict[str, str]
    tokenizer: Tokenizer

    @cached_property
    def _template(self) -> jinja2.Template:
        return _environment().from_string(self.source)

    @property
    def has_thinking_switch(self) -> bool:
        """Whether the template knows `enable_thinking`."""
        return THINKING_SWITCH in self.source

    def render(
        self, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...] = (), thinking: str = "default"
    ) -> str:
        """Return the prompt text, ending where the reply begins.

        Raises jinja2.TemplateError where the template refuses the messages.
        """
        variables: dict[str, Any] = {
            "messages": [_with_parsed_arguments(message) for message in messages],
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": True,
        }
        if thinking != "default" and self.has_thinking_switch:
            variables[THINKING_SWITCH] = thinking == "on"
        return self._template.render(variables | self.special_tokens)

    def token_ids(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of rendered prompts; the template has already written the special tokens."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def count_tokens(self, text: str) -> int:
        """Return the number of ids of a prompt.

        Turns of a conversation repeat each other: pieces between special tokens, at which every tokenizer splits,
        are counted once each, where a probe shows that the sum is exact.
        """
        if self._splitter is None:
            return len(self.token_ids([text])[0])
        return sum(self._piece_tokens(piece) for piece in self._splitter.split(text) if piece)

    @cached_property
    def _piece_tokens(self) -> Callable[[str], int]:
        return lru_cache(maxsize=PIECES_KEPT)(lambda piece: len(self.token_ids([piece])[0]))

    @cached_property
    def _splitter(self) -> re.Pattern[str] | None:
        added = self.tokenizer.get_added_tokens_decoder().values()
        special = sorted((token.content for token in added if token.special), key=len, reverse=True)
        if not special or any(token.lstrip or token.rstrip for token in added):
            return None
        splitter = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        probe = special[0].join(("", " a  b", "\n\nx\n", " ", "é1234", "don't", ""))
        pieces = [piece for piece in splitter.split(probe) if piece]
        whole, *parts = self.token_ids([probe, *pieces])
        return splitter if whole == [token for part in parts for token in part] else None


def load_target_template(target_dir: Path) -> TargetTemplate:
    """Read the template and tokenizer of a checkpoint folder; WorkloadError where one is missing."""
    config = json.loads(_read(target_dir, TOKENIZER_CONFIG_FILE))
    special = {name: _token_text(config[name]) for name in SPECIAL_TOKENS if config.get(name) is not None}
    tokenizer = Tokenizer.from_str(_read(target_dir, TOKENIZER_FILE).decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return TargetTemplate(_template_source(target_dir, config), special, tokenizer)


def template_digest(target_dir: Path) -> str:
    """Return the sha256 of what turns messages into token ids: template, special tokens and tokenizer."""
    digest = hashlib.sha256()
    for name in (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, TEMPLATE_FILE):
        path = target_dir / name
        if name != TEMPLATE_FILE or path.exists():
            content = _read(target_dir, name)
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def probe_tool_format(template: TargetTemplate) -> ToolFormat:
    """Return "native" where the template shows tool documents, calls and results to the model.

    Decided by rendering a conversation with unmistakable names and looking for them.
    """
    messages, tools, traces = _probe_conversation()
    try:
        text = template.render(messages, tools)
    except (jinja2.TemplateError, TypeError, KeyError, ValueError):
        return "bfcl_text"
    return "native" if all(trace in text for trace in traces) else "bfcl_text"


def _probe_conversation() -> tuple[tuple[Message, ...], tuple[dict[str, Any], ...], tuple[str, ...]]:
    parameters = {"type": "object", "properties": {"probe_argument": {"type": "string"}}}
    tool = {
        "type": "function",
        "function": {"name": "probe_tool", "description": "probe_description", "parameters": parameters},
    }
    call = {"name": "probe_tool", "arguments": json.dumps({"probe_argument": "probe_value"})}
    messages = (
        {"role": "user", "content": "probe_question"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "probe0001", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "probe0001", "name": "probe_tool", "content": "probe_result"},
    )
    return messages, (tool,), ("probe_description", "probe_argument", "probe_value", "probe_result")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = PINNED_NOW.strftime
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML characters; templates written for transformers expect plain JSON."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _with_parsed_arguments(message: Message) -> Message:
    """Return the message with call arguments as objects: OpenAI sends JSON text, templates iterate over keys."""
    if not message.get("tool_calls"):
        return message
    return message | {"tool_calls": [_with_parsed_call(call) for call in message["tool_calls"]]}


def _with_parsed_call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    return call | {"function": call["function"] | {"arguments": parsed}}


def _template_source(target_dir: Path, config: dict[str, Any]) -> str:
    if (target_dir / TEMPLATE_FILE).exists():
        return _read(target_dir, TEMPLATE_FILE).decode()
    source = config.get("chat_template")
    if isinstance(source, list):
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if not isinstance(source, str):
        raise WorkloadError(
            f"{target_dir}: neither {TEMPLATE_FILE} nor chat_template in {TOKENIZER_CONFIG_FILE}; prompts are "
            "rendered by the target's own template, so name a checkpoint that has one"
        )
    return source


def _token_text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _read(target_dir: Path, name: str) -> bytes:
    try:
        return (target_dir / name).read_bytes()
    except OSError as error:
        raise WorkloadError(f"{target_dir / name}: {error.strerror}; the target's folder must hold it") from None
