"""The command line: SGLang's names, resolved budgets, and one line for each mistake."""

import socket
from pathlib import Path

import pytest

from draftbench.engine.http_flags import ServerFlags, bind_loopback, parse_flags
from draftbench.errors import ServerError


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    """Two checkpoint folders."""
    for name in ("target", "drafter"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    return {name: str(tmp_path / name) for name in ("target", "drafter")}


def flags_of(models: dict[str, str], method: str | None = None, *more: str) -> ServerFlags:
    """The flags of a method."""
    drafting = []
    if method is not None:
        drafting = ["--speculative-algorithm", method, "--speculative-draft-model-path", models["drafter"]]
    return parse_flags(["--model-path", models["target"], *drafting, *more])


def test_without_an_algorithm_the_server_decodes_one_token_a_step(models: dict[str, str]) -> None:
    """AR, no budget, and the model path as its name."""
    flags = flags_of(models)

    assert (flags.method, flags.draft_budget, flags.served_model_name) == ("AR", None, models["target"])


def test_a_verify_width_is_one_more_than_the_budget(models: dict[str, str]) -> None:
    """SGLang's num-draft-tokens counts the root; a tree's budget does not."""
    assert flags_of(models, "DFLASH", "--speculative-num-draft-tokens", "8").draft_budget == 7
    assert flags_of(models, "DDTREE", "--speculative-num-draft-tokens", "16").draft_budget == 15
    assert flags_of(models, "DDTREE", "--speculative-ddtree-budget", "15").draft_budget == 15
    assert flags_of(models, "DFLASH").draft_budget is None


def test_server_info_reports_the_budget_in_both_forms(models: dict[str, str]) -> None:
    """15 nodes are a verify width of 16; a chain has no tree budget."""
    tree = flags_of(models, "DDTREE", "--speculative-ddtree-budget", "15").as_server_info()
    chain = flags_of(models, "DFLASH", "--speculative-num-draft-tokens", "8").as_server_info()

    assert (tree["speculative_num_draft_tokens"], tree["speculative_ddtree_budget"]) == (16, 15)
    assert (chain["speculative_num_draft_tokens"], chain["speculative_ddtree_budget"]) == (8, None)
    assert flags_of(models).as_server_info()["speculative_num_draft_tokens"] is None


@pytest.mark.parametrize(
    ("method", "more", "expected"),
    [
        (None, ["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (None, ["--max-running-requests", "0"], "--max-running-requests: 0 is below 1"),
        (None, ["--context-length", "1"], "--context-length: 1 is below 2"),
        (None, ["--host", "0.0.0.0"], "--host: 0.0.0.0 is not loopback"),
        (None, ["--port", "70000"], "--port: 70000 is outside"),
        (None, ["--dtype", "int4"], "argument --dtype: invalid choice"),
        (None, ["--speculative-ddtree-budget", "8"], "--speculative-ddtree-budget: needs --speculative-algorithm"),
        (None, ["--speculative-algorithm", "DFLASH"], "--speculative-draft-model-path: DFLASH needs a drafter"),
        ("EAGLE", [], "--speculative-algorithm: EAGLE is not one of DFLASH, DDTREE"),
        ("DDTREE", [], "--speculative-ddtree-budget: needed"),
        ("DDTREE", ["--speculative-ddtree-budget", "0"], "--speculative-ddtree-budget: 0 is below 1"),
        ("DFLASH", ["--speculative-num-draft-tokens", "1"], "--speculative-num-draft-tokens: 1 is below 2"),
        ("DFLASH", ["--speculative-ddtree-budget", "8"], "--speculative-ddtree-budget: only with"),
        (
            "DDTREE",
            ["--speculative-ddtree-budget", "8", "--speculative-num-draft-tokens", "8"],
            "--speculative-num-draft-tokens: 8 is not --speculative-ddtree-budget + 1 = 9",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_flag(
    models: dict[str, str], method: str | None, more: list[str], expected: str
) -> None:
    """No usage text, no second line."""
    with pytest.raises(ServerError) as caught:
        flags_of(models, method, *more)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_checkpoint_is_named(models: dict[str, str], tmp_path: Path) -> None:
    """Target and drafter alike, each under its flag."""
    with pytest.raises(ServerError, match=r"--model-path: no config\.json in /no/such"):
        parse_flags(["--model-path", "/no/such"])
    (tmp_path / "drafter" / "config.json").unlink()
    with pytest.raises(ServerError, match=r"--speculative-draft-model-path: no config\.json"):
        flags_of(models, "DFLASH")


def test_a_taken_port_is_seen_before_anything_is_loaded() -> None:
    """The error names the port and is of class "port"."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"--port: cannot have 127.0.0.1:{port}") as caught:
            bind_loopback("127.0.0.1", port)

    assert caught.value.failure_class == "port"


def test_the_server_listens_on_loopback_alone() -> None:
    """Whatever the interface, the socket is bound to 127.0.0.1."""
    with bind_loopback("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
