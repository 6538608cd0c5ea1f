"""What a mistake in the config looks like to the user."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftbench.config import json_schema, load_config, reference_table
from draftbench.config.experiment import parse_duration
from draftbench.config.loading import check_config
from draftbench.errors import ConfigError
from draftbench.tables import data_dictionary

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def content() -> dict[str, Any]:
    """The default experiment as plain YAML content."""
    return copy.deepcopy(yaml.safe_load((PROJECT / "config.yaml").read_text()))


def _put(content: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        content = content[int(part) if part.isdigit() else part]
    content[int(last) if last.isdigit() else last] = value


MISTAKES = [
    ("bolcks", 3, "config.yaml: bolcks: unknown key; allowed here:"),
    ("workloads.code.max_tokens", 3, "config.yaml: workloads.code.max_tokens: unknown key; allowed here:"),
    ("blocks", "two", "config.yaml: blocks: input should be a valid integer"),
    (
        "arms.2.draft_budgets",
        [0, 7],
        "config.yaml: arms[2].draft_budgets[0]: input should be greater than or equal to 1",
    ),
    ("arms.1.method", "DFLAHS", "config.yaml: arms[1].method: input should be 'AR', 'DFLASH'"),
    ("arms.0.method", "NGRAM", "exactly one AR arm, the baseline of every ratio (found 0)"),
    ("drafter", None, "drafter is missing, but an arm drafts with a checkpoint"),
    ("workloads.code.test_ranks", [4, 4], "workloads.code: test_ranks [4, 4] holds no conversation"),
    ("workloads.code.concurrency", [], "workloads.code.concurrency:"),
    ("workloads", {}, "config.yaml: workloads:"),
    ("workloads.code.calibration_ranks", [3, 9], "overlap test_ranks [0, 4]"),
    ("primary_arm", "ddtree-b16", "primary_arm 'ddtree-b16' is not one of the arms: ar, dflash, ddtree-b7"),
    ("sampling", {"top_p": 1.0}, "config.yaml: sampling.temperature: is missing"),
    ("time_budget", "soon", "time_budget: 'soon' is no duration; write it as 2h30m"),
    ("workloads.code.concurrency", [64], "serving.max_running_requests is 4, below the highest concurrency 64"),
    ("serving.port", 80, "config.yaml: serving.port: input should be greater than or equal to 1024"),
    ("statistics.margin", float("nan"), "config.yaml: statistics.margin:"),
    ("engine", "vllm", "engine 'vllm' is not in engines: embedded"),
    ("arms.2.draft_budgets", [], "a DDTREE arm needs draft_budgets"),
    ("arms.1.tree_top_k", 4, "draft_budgets and tree_top_k belong to DDTREE arms only"),
    ("hypotheses.0.arm", "ddtree-b99", "hypotheses: trees-beat-chains names 'ddtree-b99', which is not an arm"),
]


@pytest.mark.parametrize(("path", "value", "expected"), MISTAKES, ids=[f"{p}={v}" for p, v, _ in MISTAKES])
def test_a_mistake_is_one_line_with_file_key_and_what_is_allowed(
    content: dict[str, Any], path: str, value: Any, expected: str
) -> None:
    """Each mistake ends in a ConfigError of one line that names the place and what is allowed."""
    _put(content, path, value)

    with pytest.raises(ConfigError) as caught:
        check_config(content, "config.yaml")

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arms: [\n", "is not valid YAML: line"),
        ("just text\n", "must hold keys and values"),
        ("", "must hold keys and values"),
        ("\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_config_is_said_to_be_none(tmp_path: Path, text: str, expected: str) -> None:
    """Broken YAML, plain text, an empty file and binary content each give one clear line."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ConfigError, match=expected):
        load_config(path)


def test_a_missing_file_is_named() -> None:
    """The path is in the line, and what to do."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read .*--configfile"):
        load_config(Path("nowhere.yaml"))


def test_the_default_experiment_is_what_the_readme_promises() -> None:
    """AR, DFlash and DDTree at 7, 15, 31; AR stands first whatever the order in the file."""
    config = load_config(PROJECT / "config.yaml")

    assert [arm.name for arm in config.expanded_arms] == ["ar", "dflash", "ddtree-b7", "ddtree-b15", "ddtree-b31"]
    assert [arm.verify_width for arm in config.expanded_arms] == [1, None, 8, 16, 32]
    assert config.time_budget_seconds is None


def test_command_line_values_replace_top_level_keys() -> None:
    """`snakemake --config blocks=5` changes that key alone."""
    assert load_config(PROJECT / "config.yaml", {"blocks": 5}).blocks == 5


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h30m", 9000.0), ("90m", 5400.0), ("45s", 45.0), ("", None), ("1d", None), ("30", None)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float | None) -> None:
    """Hours, minutes and seconds in this order, each optional; anything else is no duration."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/config.schema.json", json_schema),
        ("docs/config-reference.md", reference_table),
        ("docs/results-format.md", data_dictionary),
    ],
)
def test_generated_files_are_in_step_with_the_models(path: str, text: Any) -> None:
    """`make docs` writes these files; a changed model without it is a failure."""
    assert (PROJECT / path).read_text() == text()


def test_every_key_of_the_models_has_a_description() -> None:
    """The reference table has no empty meaning."""
    rows = [line for line in reference_table().splitlines() if line.startswith("| `")]

    assert len(rows) > 60
    assert not [row for row in rows if row.rstrip(" |").endswith(("None", "required |"))]


@pytest.mark.parametrize("path", sorted((PROJECT / "experiments").glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_experiment_loads(path: Path) -> None:
    """No example is left behind when a key changes."""
    assert load_config(path).expanded_arms[0].method == "AR"
