"""Commands of both engines, run: the stub server in SGLang's contract takes them and says what it understood."""

import sys
from pathlib import Path
from typing import Any

import pytest

from draftbench.config import Arm, EngineConfig, ServingConfig
from draftbench.servers.flags import embedded_command, sglang_command
from draftbench.servers.leases import lease
from draftbench.servers.probe import fetch_server_info
from draftbench.servers.server_spec import RunContext
from tests.unit.servers.local_node import Node, SpecFactory, gpu_indices

STUB = str(Path(__file__).resolve().parents[2] / "fakes" / "stub_server.py")
SERVING = ServingConfig(
    max_running_requests=16,
    context_length=4096,
    memory_fraction=0.8,
    page_size=1,
    attention_backend="triton",
    cuda_graph_max_batch=16,
)
TREE = Arm("ddtree-b15", "DDTREE", draft_budget=15, tree_top_k=8)
SHARED: dict[str, Any] = {
    "python": sys.executable,
    "target": "/models/target",
    "drafter": "/models/drafter",
    "served_model_name": "session-1",
    "random_seed": 7,
}


def test_an_sglang_command_starts_the_planned_server(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """The resolved flags are held against the plan before the server counts as ready; both ports are its own."""
    engine = EngineConfig(kind="sglang", python=sys.executable, launcher=(STUB, "--stub-ranks", "2"))
    command = sglang_command(TREE, SERVING, engine, **SHARED, device="cuda", tp=2, drafter_block_size=8)
    planned = {
        "served_model_name": "session-1",
        "tp_size": 2,
        "speculative_algorithm": "DDTREE",
        "speculative_num_draft_tokens": 16,
        "speculative_dflash_block_size": 8,
        "mem_fraction_static": 0.8,
        "cuda_graph_bs_decode": [1, 2, 3, 4, 5, 6, 7, 8, 12, 16],
    }
    spec = make_spec("tree", device="cuda", tp=2, expected_info=planned)
    with lease(spec.model_copy(update={"command": tuple(command)}), run) as state:
        info = fetch_server_info(state.port)
        assert gpu_indices(state) == [0, 1]
        assert (info["port"], info["nccl_port"]) == (state.port, state.nccl_port)
        assert state.port != state.nccl_port


@pytest.mark.parametrize(("arm", "algorithm", "width"), [(Arm("ar", "AR"), None, None), (TREE, "DDTREE", 16)])
def test_an_embedded_command_starts_the_planned_server(
    node: Node, run: RunContext, make_spec: SpecFactory, arm: Arm, algorithm: str | None, width: int | None
) -> None:
    """The embedded engine's own flags for trees."""
    engine = EngineConfig(kind="embedded", python=sys.executable, launcher=(STUB,))
    command = embedded_command(arm, SERVING, engine, **SHARED, device="cpu", dtype="float32", threads=None)
    planned = {"speculative_algorithm": algorithm, "speculative_num_draft_tokens": width, "device": "cpu"}
    spec = make_spec(arm.name, expected_info=planned).model_copy(update={"command": tuple(command)})
    with lease(spec, run) as state:
        assert fetch_server_info(state.port)["context_length"] == 4096
