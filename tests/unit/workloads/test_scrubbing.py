"""What is taken out of transcripts, and what is left."""

import pytest

from draftbench.workloads.scrubbing import account_names, scrub


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail jane.doe+x@mail.example.co.uk now", "mail user@example.com now"),
        ("cd /home/jane/src && ls", "cd /home/user/src && ls"),
        ("/Users/jane", "/Users/user"),
        ('"/Users/jane.doe/a b"', '"/Users/user/a b"'),
        ("ssh 10.1.2.3:22 and 127.0.0.1:80", "ssh 192.0.2.1:22 and 127.0.0.1:80"),
        ("sk-abcdefghijklmnopqrstuv", "<KEY>"),
        ("token ghp_abcdefghijklmnopqrstuvwxyz0123456789!", "token <KEY>!"),
        ("AKIAABCDEFGHIJKLMNOP", "<KEY>"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def", "<KEY>"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb", "a\n<KEY>\nb"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "<KEY>"),
        ('API_KEY="0123456789abcdef01234567"', 'API_KEY="<KEY>"'),
    ],
)
def test_personal_and_secret_strings_go(text: str, expected: str) -> None:
    """Each kind has one fixed replacement."""
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3 and 1.2.3.4.5",
        "@decorator",
        "the /home page",
        "token_count = 5",
        "git commit 0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    """Versions, decorators, commits and words about tokens are no secrets."""
    assert scrub(text) == text


def test_account_names_go_everywhere() -> None:
    """The name of a home folder is replaced as a word wherever it stands; shared accounts are no names."""
    texts = ["cd /home/jdoe/x", "-rw-r--r-- 1 jdoe staff", "/home/ubuntu/y"]
    names = account_names(texts)
    assert names == {"jdoe"}
    assert scrub(texts[1], names) == "-rw-r--r-- 1 user staff"
    assert scrub("jdoes jdoe_x", names) == "jdoes user_x"
