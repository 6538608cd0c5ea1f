"""The run file."""

from pathlib import Path

import pytest

from draftbench.errors import ResultsError
from draftbench.load.run_file import load_run_file
from tests.unit.load.builders import CELL, SESSION, RunPlan


def test_it_comes_back_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs read what the rules wrote, by the environment variable."""
    run = RunPlan(tmp_path).build()
    path = tmp_path / "run.json"
    path.write_text(run.model_dump_json())
    monkeypatch.setenv("DRAFTBENCH_RUN", str(path))

    assert load_run_file() == run


def test_without_the_variable_the_user_is_sent_to_snakemake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script run by hand says how it is run."""
    monkeypatch.delenv("DRAFTBENCH_RUN", raising=False)
    with pytest.raises(ResultsError, match="through snakemake"):
        load_run_file()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), ("{}", "experiment: Field required"), ('{"surprise": 1}', "Field required|Extra")],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    """Which file, which key, what to do."""
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ResultsError, match=message) as caught:
        load_run_file(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_keys_are_one_line(tmp_path: Path) -> None:
    """A job of an old plan names what is missing from the new one."""
    run = RunPlan(tmp_path).build()
    for ask in (lambda: run.session("gone"), lambda: run.cell(SESSION, "gone"), lambda: run.files("gone")):
        with pytest.raises(ResultsError, match="'gone' is not"):
            ask()
    assert run.cell(SESSION, CELL).concurrency == 2
