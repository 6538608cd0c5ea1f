"""The guard that keeps numbers comparable."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def guard() -> ModuleType:
    """tools/measurement_code.py as a module."""
    spec = importlib.util.spec_from_file_location("measurement_code", PROJECT / "tools" / "measurement_code.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_code_that_can_change_a_measurement_was_declared(guard: ModuleType) -> None:
    """A change in engine, load, servers or workloads needs a raised protocol or a declaration that it is harmless."""
    assert guard.problem() is None


def test_comments_and_docstrings_do_not_count_but_code_does(guard: ModuleType) -> None:
    """The digest is over syntax trees without docstrings."""
    plain = guard._without_docstrings("def f():\n    return 1\n")

    assert guard._without_docstrings('def f():\n    """Doc."""\n    return 1  # why\n') == plain
    assert guard._without_docstrings("def f():\n    return 2\n") != plain
