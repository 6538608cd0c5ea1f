"""What the plan is a function of."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from draftbench.config import Arm, ExperimentConfig
from draftbench.config.arms import NEEDS_DRAFTER
from draftbench.hardware import Inventory, read_inventory, runs_on
from draftbench.models import ModelFacts, read_facts


@dataclass(frozen=True)
class PlanInputs:
    """Config, node and model facts; `file_name` stands in error lines alone."""

    config: ExperimentConfig
    inventory: Inventory
    target: ModelFacts
    drafter: ModelFacts | None
    file_name: str = "config.yaml"
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """What the engine computes on."""
        return runs_on(self.inventory, self.config.engine_entry.device)

    @property
    def baseline(self) -> Arm:
        """The AR arm."""
        return self.config.expanded_arms[0]

    @property
    def highest_concurrency(self) -> int:
        """The most conversations at once in any cell."""
        return max(value for workload in self.config.workloads.values() for value in workload.concurrency)

    def drafter_of(self, arm: Arm) -> ModelFacts | None:
        """Return the drafter where the arm loads one."""
        return self.drafter if arm.method in NEEDS_DRAFTER else None

    def verify_width(self, arm: Arm) -> int | None:
        """Tokens that one verify pass runs through the target; None where neither arm nor drafter says."""
        if arm.verify_width is not None or arm.method != "DFLASH" or self.drafter is None:
            return arm.verify_width
        return self.drafter.count("block_size")


def read_inputs(
    config: ExperimentConfig,
    root: Path,
    file_name: str = "config.yaml",
    environment: Mapping[str, str] = os.environ,
) -> PlanInputs:
    """Look at the node and read the facts of target and drafter; paths are relative to `root`.

    Raises ModelError, one line, for a model path without a checkpoint.
    """
    drafter = None if config.drafter is None else read_facts(config.drafter, root, "drafter")
    return PlanInputs(
        config=config,
        inventory=read_inventory(config.hardware, environment),
        target=read_facts(config.target, root, "target"),
        drafter=drafter,
        file_name=file_name,
        environment={**environment, **config.engine_entry.environment},
    )
