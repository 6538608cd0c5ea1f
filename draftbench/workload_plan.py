"""The workloads of an experiment as definitions and keys; what is measured and what only warms up."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from draftbench.checkpoint_files import model_identity
from draftbench.config import ExperimentConfig, WorkloadConfig
from draftbench.errors import ConfigError
from draftbench.workloads.definitions import SOURCE_SETS, WorkloadDefinition, definition_digest
from draftbench.workloads.templates import template_digest


@dataclass(frozen=True)
class PlannedWorkloads:
    """Definitions by key; a key is `<name>-<hash6>`, the hash covering everything that decides the bytes."""

    test_keys: Mapping[str, str]
    calibration_keys: Mapping[str, str]
    definitions: Mapping[str, WorkloadDefinition]

    @classmethod
    def of(cls, config: ExperimentConfig, project: Path) -> "PlannedWorkloads":
        """Two definitions a workload, measured and calibration; raises ConfigError for an unknown set."""
        template = _template_identity(config, project)
        definitions: dict[str, WorkloadDefinition] = {}
        keys: dict[str, dict[str, str]] = {"": {}, "-calibration": {}}
        for name, workload in config.workloads.items():
            source = _own_file_digest(workload, project, name)
            for suffix, ranks in (("", workload.test_ranks), ("-calibration", calibration_ranks(workload))):
                definition = _definition(config, name, workload, ranks)
                key = f"{name}{suffix}-{definition_digest(definition, template, source)[:6]}"
                keys[suffix][name] = key
                definitions[key] = definition
        return cls(keys[""], keys["-calibration"], definitions)

    def kind(self, name: str) -> str:
        """Agentic, code, json, math or chat."""
        return SOURCE_SETS[self.definitions[self.test_keys[name]].set].kind


def calibration_ranks(workload: WorkloadConfig) -> tuple[int, int]:
    """The ranks for warm-up: the config's, else the one conversation after the measured ones."""
    return workload.calibration_ranks or (workload.test_ranks[1], workload.test_ranks[1] + 1)


def _definition(
    config: ExperimentConfig, name: str, workload: WorkloadConfig, ranks: tuple[int, int]
) -> WorkloadDefinition:
    if workload.set not in SOURCE_SETS:
        raise ConfigError(f"workloads.{name}.set: {workload.set!r} does not exist; there are {', '.join(SOURCE_SETS)}")
    return WorkloadDefinition(
        set=workload.set,
        ranks=ranks,
        max_new_tokens=workload.max_new_tokens,
        max_turns=workload.max_turns,
        min_turns=workload.min_turns,
        max_prompt_tokens=workload.max_prompt_tokens,
        max_context=config.serving.context_length,
        seed=config.seed,
        path=workload.path,
        thinking=workload.thinking,
        tools=workload.tools,
    )


def _template_identity(config: ExperimentConfig, project: Path) -> str:
    folder = project / config.target.path
    if (folder / "tokenizer_config.json").is_file():
        return template_digest(folder)
    return model_identity(config.target, project)


def _own_file_digest(workload: WorkloadConfig, project: Path, name: str) -> str | None:
    if workload.path is None:
        return None
    path = project / workload.path
    if not path.is_file():
        raise ConfigError(f"workloads.{name}.path: {workload.path} does not exist (relative to the project)")
    return hashlib.sha256(path.read_bytes()).hexdigest()
