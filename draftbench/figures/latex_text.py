"""Text from data made safe for LaTeX: special characters escaped, Unicode that no standard font has spelled out."""

import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "-": "-",
    "\u2019": "'",
    "\u2018": "`",
    "\u201c": "``",
    "\u201d": "''",
    "\u2013": "--",
    "\u2014": "---",
    "\u2026": r"\ldots{}",
    "\u00a0": "~",
    "\u202f": r"\,",
    "\u00d7": r"\ensuremath{\times}",
    "\u2212": r"\ensuremath{-}",
    "\u00b1": r"\ensuremath{\pm}",
    "\u00b7": r"\ensuremath{\cdot}",
    "\u2264": r"\ensuremath{\le}",
    "\u2265": r"\ensuremath{\ge}",
    "\u2248": r"\ensuremath{\approx}",
    "\u2260": r"\ensuremath{\ne}",
    "\u2192": r"\ensuremath{\rightarrow}",
    "\u2190": r"\ensuremath{\leftarrow}",
    "\u00b0": r"\textdegree{}",
    "\u20ac": r"\texteuro{}",
    "\u00b5": r"\textmu{}",
    "\u03bc": r"\textmu{}",
    "\u03b1": r"\ensuremath{\alpha}",
    "\u03b2": r"\ensuremath{\beta}",
    "\u03b3": r"\ensuremath{\gamma}",
    "\u03c3": r"\ensuremath{\sigma}",
    "\u221a": r"\ensuremath{\surd}",
    "\u2713": r"\ensuremath{\surd}",
    "\u221e": r"\ensuremath{\infty}",
    "\u2022": r"\textbullet{}",
}
_LATIN_END = 0x180
_BREAK_AFTER = frozenset("_/.-=:,@")
_LONGEST_PIECE = 12


def escape(text: str) -> str:
    """LaTeX that prints `text`, whatever it holds; a character without a glyph becomes `[U+4E2D]`."""
    return "".join(_escape_character(character) for character in text.replace(" %", "\u00a0%"))


def _escape_character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in "\n\t\r":
        return " "
    if " " <= character <= "~" or (character >= "\u00a1" and ord(character) < _LATIN_END):
        return character
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_SPECIAL.get(part, part) for part in plain) if plain else f"[U+{ord(character):04X}]"


def breakable(text: str) -> str:
    """As `escape`, but may break after punctuation and within long words, so that nothing leaves its column."""
    pieces, since_break = [], 0
    for character in text.replace(" %", "\u00a0%"):
        pieces.append(_escape_character(character))
        since_break = 0 if character.isspace() else since_break + 1
        if (character in _BREAK_AFTER and since_break > 1) or since_break >= _LONGEST_PIECE:
            pieces.append(r"\allowbreak{}")
            since_break = 0
    return "".join(pieces)


def code(text: str) -> str:
    """Typewriter text that may break, for keys, hashes and commands."""
    return rf"\texttt{{{breakable(text)}}}"
