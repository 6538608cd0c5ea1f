"""The whole config and the checks that need more than one section."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from draftbench.config.arms import NEEDS_DRAFTER, Arm, ArmConfig
from draftbench.config.engines import EngineConfig, ServingConfig
from draftbench.config.hardware import HardwareConfig
from draftbench.config.inference import Hypothesis, StatisticsConfig
from draftbench.config.models import ModelConfig
from draftbench.config.section import Section
from draftbench.config.workloads import WorkloadConfig

_DURATION = re.compile(r"^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$")


class SamplingConfig(Section):
    """Request parameters that every cell shares."""

    temperature: Annotated[float, Field(ge=0)] = Field(description="0 = greedy, the primary mode; must be stated.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="Nucleus sampling mass.")


class ExperimentConfig(Section):
    """One experiment: everything that decides what is measured and how it is judged."""

    experiment: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", description="Name; results lie in results/<experiment>/.")
    question: str = Field(min_length=1, description="What the study answers, printed on plan and report.")
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="Seed of item choice, order and sampling.")
    engine: str = Field(description="Which entry of `engines` serves.")
    engines: dict[str, EngineConfig] = Field(min_length=1, description="Server programs by name.")
    serving: ServingConfig = Field(description="Server settings, the same for every arm.")
    target: ModelConfig = Field(description="The model that is served.")
    drafter: ModelConfig | None = Field(default=None, description="The draft model; null where no arm needs one.")
    arms: tuple[ArmConfig, ...] = Field(min_length=1, description="Ways of decoding; exactly one AR.")
    primary_arm: str = Field(description="The arm of the headline, named before the run; budgets as in ddtree-b15.")
    allow_tree_on_hybrid: bool = Field(
        default=False,
        description="Opt-in to tree arms on targets with recurrent layers, which a mask cannot isolate.",
    )
    tensor_parallelism: tuple[Literal[1, 2, 4, 8, 16], ...] = Field(
        default=(1,), min_length=1, description="GPUs a server; every arm runs at each."
    )
    blocks: Annotated[int, Field(ge=1, le=100)] = Field(
        description="Launches of every arm; the unit of replication. One gives no interval, three a usable one."
    )
    packing: Literal["pairs", "exclusive"] = Field(
        default="pairs",
        description="pairs: sessions share the node's GPUs; exclusive: one session at a time.",
    )
    workloads: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], WorkloadConfig] = Field(
        min_length=1, description="Sets of prompts by name."
    )
    sampling: SamplingConfig = Field(description="Request parameters of every cell.")
    statistics: StatisticsConfig = Field(default=StatisticsConfig(), description="How the data are judged.")
    hypotheses: tuple[Hypothesis, ...] = Field(default=(), description="Claims that the report answers.")
    hardware: HardwareConfig | None = Field(default=None, description="A declared node; null = detect.")
    time_budget: str | None = Field(default=None, description="Wall time at most, as in 2h30m; null = no limit.")
    allow_over_budget: bool = Field(default=False, description="Run although the plan exceeds time_budget.")
    cell_timeout: Annotated[float, Field(gt=0)] = Field(default=1800.0, description="Seconds a cell may take.")

    @field_validator("time_budget")
    @classmethod
    def _budget_is_a_duration(cls, value: str | None) -> str | None:
        if value is not None and parse_duration(value) is None:
            raise ValueError(f"{value!r} is no duration; write it as 2h30m, 90m or 45s")
        return value

    @model_validator(mode="after")
    def _sections_fit_together(self) -> Self:
        for problem in (*self._arm_problems(), *self._serving_problems()):
            raise ValueError(problem)
        return self

    @property
    def expanded_arms(self) -> tuple[Arm, ...]:
        """Every arm, AR first, the rest in the order written."""
        arms = [arm for entry in self.arms for arm in entry.expand()]
        return tuple(sorted(arms, key=lambda arm: arm.method != "AR"))

    @property
    def engine_entry(self) -> EngineConfig:
        """The engine that serves this experiment."""
        return self.engines[self.engine]

    @property
    def time_budget_seconds(self) -> float | None:
        """`time_budget` in seconds; None = no limit."""
        return parse_duration(self.time_budget) if self.time_budget else None

    def _arm_problems(self) -> list[str]:
        arms = [arm for entry in self.arms for arm in entry.expand()]
        names = [arm.name for arm in arms]
        baselines = sum(arm.method == "AR" for arm in arms)
        problems = []
        if baselines != 1:
            problems.append(f"arms must hold exactly one AR arm, the baseline of every ratio (found {baselines})")
        if len(set(names)) != len(names):
            problems.append(f"arms names {max(names, key=names.count)!r} twice")
        if self.primary_arm not in names:
            problems.append(f"primary_arm {self.primary_arm!r} is not one of the arms: {', '.join(names)}")
        if self.drafter is None and any(arm.method in NEEDS_DRAFTER for arm in arms):
            problems.append("drafter is missing, but an arm drafts with a checkpoint; name its folder")
        problems += [
            f"hypotheses: {hypothesis.id} names {arm!r}, which is not an arm"
            for hypothesis in self.hypotheses
            for arm in (hypothesis.arm, hypothesis.baseline)
            if arm is not None and arm not in names
        ]
        return problems

    def _serving_problems(self) -> list[str]:
        problems = []
        if self.engine not in self.engines:
            problems.append(f"engine {self.engine!r} is not in engines: {', '.join(self.engines)}")
        highest = max(value for workload in self.workloads.values() for value in workload.concurrency)
        if highest > self.serving.max_running_requests:
            problems.append(
                f"serving.max_running_requests is {self.serving.max_running_requests}, below the highest "
                f"concurrency {highest}; raise it"
            )
        if len(set(self.tensor_parallelism)) != len(self.tensor_parallelism):
            problems.append("tensor_parallelism names a value twice")
        for name, workload in self.workloads.items():
            if workload.max_new_tokens >= self.serving.context_length:
                problems.append(
                    f"workloads.{name}.max_new_tokens leaves no room for a prompt in serving.context_length"
                )
        return problems


def parse_duration(text: str) -> float | None:
    """Seconds of `2h30m`; None where the text is no duration."""
    match = _DURATION.match(text)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600.0 + minutes * 60.0 + seconds
