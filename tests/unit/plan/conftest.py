"""A small study on a declared node with round numbers, to be changed by each test."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from draftbench.config.loading import check_config
from draftbench.config.models import FACT_NAMES
from draftbench.hardware import GIB, Gpu, Inventory
from draftbench.models import Fact, ModelFacts
from draftbench.plan.inputs import PlanInputs

MakeInputs = Callable[..., PlanInputs]

TARGET = {
    "layers": 40,
    "attention_layers": 40,
    "recurrent_layers": 0,
    "hidden_size": 512,
    "query_heads": 24,
    "kv_heads": 4,
    "head_dim": 128,
    "vocabulary": 1000,
    "parameters": 8 * 2**30,
    "weight_bytes": 16 * GIB,
    "kv_bytes_per_token": 65536,
    "recurrent_state_bytes": 0,
    "context_length": 32768,
}

DRAFTER = {
    **TARGET,
    "layers": 5,
    "attention_layers": 5,
    "query_heads": 32,
    "kv_heads": 8,
    "weight_bytes": 2 * GIB,
    "parameters": 2**30,
    "kv_bytes_per_token": 8192,
    "block_size": 16,
    "mask_token_id": 7,
    "feature_layers": (1, 10, 20, 30, 37),
}

CONFIG: dict[str, Any] = {
    "experiment": "test",
    "question": "Does it pay?",
    "engine": "main",
    "engines": {"main": {"kind": "sglang", "python": "python", "device": "auto"}},
    "serving": {
        "max_running_requests": 8,
        "context_length": 4096,
        "memory_fraction": 0.5,
        "page_size": 1,
        "attention_backend": "triton",
        "cuda_graph_max_batch": 8,
    },
    "target": {"name": "target", "path": "target"},
    "drafter": {"name": "drafter", "path": "drafter"},
    "arms": [
        {"name": "ar", "method": "AR"},
        {"name": "dflash", "method": "DFLASH"},
        {"name": "ddtree", "method": "DDTREE", "draft_budgets": [16]},
    ],
    "primary_arm": "ddtree-b16",
    "tensor_parallelism": [1],
    "blocks": 2,
    "workloads": {
        "code": {"set": "code-humaneval", "test_ranks": [0, 4], "max_new_tokens": 100, "concurrency": [1, 4]},
    },
    "sampling": {"temperature": 0.0},
}


def facts(values: Mapping[str, Any], name: str) -> ModelFacts:
    """Facts with one source; names that are missing or None are unknown."""
    return ModelFacts(name, "test", {key: Fact(values.get(key), f"{key} of the test") for key in FACT_NAMES})


def node(gpus: int = 8, memory: int | None = 48 * GIB, **changes: Any) -> Inventory:
    """GPUs on NUMA nodes of four, or a CPU with 64 GiB where there are none."""
    content: dict[str, Any] = {
        "origin": "declared",
        "source": "test",
        "cpu_model": "Test CPU",
        "cpu_cores": 8,
        "cpu_features": ("amx_bf16",),
        "memory_bytes": 64 * GIB,
        "gpus": tuple(Gpu(i, f"GPU-{i}", "NVIDIA Test", memory, i // 4) for i in range(gpus)),
        "memory_bandwidth_gb_s": 1000.0,
    }
    return Inventory(**(content | changes))


def merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Replace keys, inside sections too."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


@pytest.fixture
def make_inputs() -> MakeInputs:
    """Build plan inputs; keywords change the config, the node, the facts or the environment."""

    def make(
        config: Mapping[str, Any] | None = None,
        inventory: Inventory | None = None,
        target: Mapping[str, Any] | None = None,
        drafter: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> PlanInputs:
        return PlanInputs(
            config=check_config(merge(CONFIG, config or {}), "study.yaml"),
            inventory=inventory or node(),
            target=facts({**TARGET, **(target or {})}, "target"),
            drafter=facts({**DRAFTER, **(drafter or {})}, "drafter"),
            file_name="study.yaml",
            environment=environment or {},
        )

    return make
