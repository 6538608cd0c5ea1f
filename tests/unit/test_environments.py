"""Conda files and pip locks name the same versions."""

from pathlib import Path

import pytest
import yaml

ENVIRONMENTS = Path(__file__).parents[2] / "envs"


def _locked(name: str) -> dict[str, str]:
    lines = (ENVIRONMENTS / f"{name}.lock.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {package.lower().replace("_", "-"): version for package, version in pairs}


@pytest.mark.parametrize("name", ["driver", "engine", "serving"])
def test_conda_form_agrees_with_the_lock(name: str) -> None:
    """Every pinned package of the conda file stands in the lock at the same version."""
    dependencies = yaml.safe_load((ENVIRONMENTS / f"{name}.yaml").read_text())["dependencies"]
    pinned = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    locked = _locked(name)

    for requirement in pinned:
        package, version = requirement.split("==")
        assert locked[package.lower().replace("_", "-")] == version


def test_no_lock_of_the_driver_holds_torch() -> None:
    """The environment that plans and analyses stays small."""
    assert "torch" not in _locked("driver")
