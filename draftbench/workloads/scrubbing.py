"""Takes personal and secret-looking strings out of public transcripts; the replacements are fixed texts."""

import re
from collections.abc import Iterable

EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
HOME_FOLDER = re.compile(r"(?<![\w.])/(home|Users|export/home)/([^\s/\"'`:;,)\\\]}<>|*$]+)")
IP_ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
KEY_SHAPES = tuple(
    re.compile(shape, re.DOTALL)
    for shape in (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"\b(?:gh[pousr]_|github_pat_)\w{16,}",
        r"\b(?:sk|pk|rk)[-_][\w-]{16,}",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}",
        r"\bxox[abpors]-[\w-]{10,}",
        r"\bhf_\w{16,}",
        r"\bAIza[\w-]{30,}",
        r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
        r"\bya29\.[\w-]{16,}",
        r"\bglpat-[\w-]{16,}",
    )
)
CREDENTIAL_VALUE = re.compile(
    r"((?:api[_-]?key|secret|token|passw(?:or)?d|authorization: bearer)[\"']?\s*[:=]?\s*[\"']?)([A-Za-z0-9+/_=-]{24,})",
    re.IGNORECASE,
)

LOCAL_ADDRESSES = frozenset({"127.0.0.1", "0.0.0.0", "255.255.255.255"})  # noqa: S104 - text, not a socket
SHARED_ACCOUNTS = frozenset({"user", "root", "runner", "ubuntu", "Shared", "shared", "node", "app", "vscode"})
"""Home folder names that belong to no person; the words are too common to be replaced elsewhere."""


def account_names(texts: Iterable[str]) -> frozenset[str]:
    """Return the names of home folders in `texts` that look like a person's account."""
    names = {match.group(2) for text in texts for match in HOME_FOLDER.finditer(text)}
    return frozenset(name for name in names if len(name) > 2) - SHARED_ACCOUNTS


def scrub(text: str, accounts: frozenset[str] = frozenset()) -> str:
    """Return `text` without e-mail addresses, home folders, public addresses, key shapes and account names."""
    for shape in KEY_SHAPES:
        text = shape.sub("<KEY>", text)
    text = CREDENTIAL_VALUE.sub(r"\1<KEY>", text)
    text = EMAIL.sub("user@example.com", text)
    text = HOME_FOLDER.sub(r"/\1/user", text)
    text = IP_ADDRESS.sub(lambda match: _address(match.group()), text)
    if accounts:
        names = "|".join(re.escape(name) for name in sorted(accounts, key=len, reverse=True))
        text = re.sub(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])", "user", text)
    return text


def _address(address: str) -> str:
    return address if address in LOCAL_ADDRESSES else "192.0.2.1"
