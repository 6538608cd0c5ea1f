"""Incremental text and stop strings, with bytes as tokens so that every expectation can be counted by hand."""

from collections.abc import Sequence

import pytest

from draftbench.engine.http_text import IncrementalDecoder, StopStrings, held_back


class ByteTokens:
    """A token is a byte; 256 is a special token without text."""

    def encode(self, text: str) -> list[int]:
        """The bytes."""
        return list(text.encode())

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text, incomplete characters as U+FFFD."""
        special = b"" if skip_special_tokens else b"<end>"
        return b"".join(special if token == 256 else bytes([token]) for token in ids).decode(errors="replace")


@pytest.mark.parametrize("text", ["plain", "naïve 😀 日本語", "e\u0301 👩‍👩‍👧", " leading and trailing "])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_pieces_add_up_and_no_character_is_split(text: str, step: int) -> None:
    """However the bytes are cut, no piece shows a replacement character and together they are the text."""
    decoder = IncrementalDecoder(ByteTokens())
    ids = list(text.encode())

    pieces = [decoder.push(ids[start : start + step]) for start in range(0, len(ids), step)]

    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == text
    assert decoder.finish() == ""


def test_a_character_is_held_back_until_its_last_byte() -> None:
    """😀 has four bytes: nothing after three of them, the character after the fourth."""
    decoder = IncrementalDecoder(ByteTokens())
    ids = list("😀".encode())

    assert [decoder.push([token]) for token in ids] == ["", "", "", "😀"]


def test_an_incomplete_end_is_shown_at_the_finish() -> None:
    """A stream that stops within a character ends with U+FFFD instead of losing it in silence."""
    decoder = IncrementalDecoder(ByteTokens())

    assert decoder.push([*b"ab", 0xE2, 0x82]) == ""
    assert decoder.finish() == "ab\ufffd"


def test_bytes_that_never_become_a_character_do_not_block_what_follows() -> None:
    """A lone continuation byte shows as U+FFFD once later text is complete."""
    decoder = IncrementalDecoder(ByteTokens())

    assert decoder.push([0x80]) == ""
    assert decoder.push(list(b"ok")) == "\ufffdok"


def test_special_tokens_show_only_when_asked_for() -> None:
    """Token 256 has no text by default."""
    ids = [*b"a", 256, *b"b"]

    assert "".join(IncrementalDecoder(ByteTokens()).push([token]) for token in ids) == "ab"
    assert IncrementalDecoder(ByteTokens(), skip_special_tokens=False).push(ids) == "a<end>b"


def test_a_stop_string_is_found_across_pushes_with_the_token_that_completes_it() -> None:
    """ "name" over two pushes: its last letter is the second token of the second push."""
    stops = StopStrings(ByteTokens(), ["name"])

    assert stops.push(list(b"my na")) is None
    assert stops.push(list(b"me is")) == (2, "name")


def test_the_stop_string_that_begins_first_wins() -> None:
    """Both "bc" and "c" end at the same token; "bc" begins earlier."""
    stops = StopStrings(ByteTokens(), ["c", "bc"])

    assert stops.push(list(b"abcd")) == (3, "bc")


def test_text_that_only_resembles_a_stop_string_does_not_stop() -> None:
    """ "nanam" holds no "name"; the match must not lose its beginning to the trimming of old text."""
    stops = StopStrings(ByteTokens(), ["name"])

    assert stops.push(list(b"nanam")) is None
    assert stops.push(list(b"e")) == (1, "name")


@pytest.mark.parametrize(
    ("text", "stops", "held"),
    [("user na", ["name"], 2), ("user nam", ["name"], 3), ("user nax", ["name"], 0), ("a\n", ["\n\n", "END"], 1)],
)
def test_what_may_become_a_stop_string_is_held_back(text: str, stops: list[str], held: int) -> None:
    """The longest end of the text that begins a stop string."""
    assert held_back(text, stops) == held
