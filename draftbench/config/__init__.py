"""The experiment's config: typed sections, one loader, cross-field checks."""

from draftbench.config.arms import Arm, ArmConfig, Method
from draftbench.config.engines import EngineConfig, ServingConfig
from draftbench.config.experiment import ExperimentConfig
from draftbench.config.hardware import HardwareConfig
from draftbench.config.inference import Hypothesis, StatisticsConfig
from draftbench.config.loading import json_schema, load_config, reference_table
from draftbench.config.models import DeclaredFact, ModelConfig
from draftbench.config.workloads import WorkloadConfig

__all__ = [
    "Arm",
    "ArmConfig",
    "DeclaredFact",
    "EngineConfig",
    "ExperimentConfig",
    "HardwareConfig",
    "Hypothesis",
    "Method",
    "ModelConfig",
    "ServingConfig",
    "StatisticsConfig",
    "WorkloadConfig",
    "json_schema",
    "load_config",
    "reference_table",
]
