"""Text in and out: tokenising prompts, incremental detokenisation, stop strings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from draftbench.errors import ModelError

REPLACEMENT = "\ufffd"


class TextCodec(Protocol):
    """What the front needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, special tokens recognised."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of token ids; incomplete UTF-8 shows as U+FFFD."""


class FileTokenizer:
    """A checkpoint's `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{path}: not found; the target's folder must hold its tokenizer.json")
        self._tokenizer = Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, special tokens recognised."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of token ids; incomplete UTF-8 shows as U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text


class IncrementalDecoder:
    """Text of a growing token sequence, piece by piece; a character is given out only when complete.

    Each piece is the difference of two short decodes that share a left context, as in vLLM and SGLang.
    """

    def __init__(self, codec: TextCodec, skip_special_tokens: bool = True) -> None:
        self._codec = codec
        self._skip_special_tokens = skip_special_tokens
        self._ids: list[int] = []
        self._context_start = 0
        self._shown_end = 0

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens complete."""
        self._ids.extend(ids)
        text = self._tail()
        if text.endswith(REPLACEMENT):
            return ""
        self._context_start, self._shown_end = self._shown_end, len(self._ids)
        return text

    def finish(self) -> str:
        """What is still held back, incomplete characters as U+FFFD."""
        text = self._tail()
        self._context_start, self._shown_end = self._shown_end, len(self._ids)
        return text

    def _tail(self) -> str:
        """The text of the tokens not yet shown."""
        window = self._ids[self._context_start :]
        shown = self._ids[self._context_start : self._shown_end]
        context = self._codec.decode(shown, self._skip_special_tokens) if shown else ""
        return self._codec.decode(window, self._skip_special_tokens)[len(context) :]


class StopStrings:
    """Finds the first stop string in a growing token sequence."""

    def __init__(self, codec: TextCodec, strings: Sequence[str], skip_special_tokens: bool = True) -> None:
        assert strings
        self._decoder = IncrementalDecoder(codec, skip_special_tokens)
        self._strings = tuple(strings)
        self._kept = max(len(text) for text in strings) - 1
        self._tail = ""

    def push(self, ids: Sequence[int]) -> tuple[int, str] | None:
        """How many of these tokens complete a stop string, and which; None while there is none."""
        for count, token in enumerate(ids, start=1):
            self._tail += self._decoder.push([token])
            found = [text for text in self._strings if text in self._tail]
            if found:
                return count, min(found, key=self._tail.find)
            self._tail = self._tail[-self._kept :] if self._kept else ""
        return None


def held_back(text: str, stop_strings: Sequence[str]) -> int:
    """Characters at the end of `text` that may become a stop string, and so are not shown yet."""
    longest = max((len(stop) for stop in stop_strings), default=0)
    for length in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stop_strings):
            return length
    return 0


def trim_at_stop(text: str, stop: str, keep_stop: bool) -> str:
    """The text before (or up to and with) a stop string."""
    position = text.find(stop)
    if position < 0:
        return text
    return text[: position + len(stop)] if keep_stop else text[:position]
