"""Argument lists of both engines. Flag names: `server_args.py` of SGLang 0.5.17, the embedded engine's own parser."""

import pytest

from draftbench.config import Arm, EngineConfig, ServingConfig
from draftbench.errors import ConfigError
from draftbench.servers.flags import (
    embedded_command,
    flag_name,
    free_flags,
    graph_batch_sizes,
    repeated_flags,
    sglang_command,
)

SERVING = ServingConfig(
    max_running_requests=32,
    context_length=8192,
    memory_fraction=0.85,
    page_size=1,
    overlap_schedule=False,
    attention_backend="triton",
    cuda_graph_max_batch=32,
)
SGLANG = EngineConfig(kind="sglang", python="/opt/sglang/bin/python")
EMBEDDED = EngineConfig(kind="embedded", python=".venvs/engine/bin/python")

# Flags with which every arm of one SGLang experiment must start, values and all.
SHARED = {
    "--model-path": ["/models/target"],
    "--served-model-name": ["session-1"],
    "--host": ["127.0.0.1"],
    "--port": ["{port}"],
    "--nccl-port": ["{nccl_port}"],
    "--tp-size": ["4"],
    "--device": ["cuda"],
    "--dtype": ["auto"],
    "--random-seed": ["7"],
    "--context-length": ["8192"],
    "--max-running-requests": ["32"],
    "--mem-fraction-static": ["0.85"],
    "--page-size": ["1"],
    "--attention-backend": ["triton"],
    "--cuda-graph-max-bs-decode": ["32"],
    "--cuda-graph-bs-decode": ["1", "2", "3", "4", "5", "6", "7", "8", "12", "16", "20", "24", "28", "32"],
    "--disable-overlap-schedule": [],
    "--incremental-streaming-output": [],
}

SPECULATION = [
    (Arm("ar", "AR"), {}),
    (
        Arm("dflash", "DFLASH", draft_tokens=16),
        {"algorithm": ["DFLASH"], "draft-model-path": ["/models/drafter"], "num-draft-tokens": ["16"]},
    ),
    (Arm("dflash", "DFLASH"), {"algorithm": ["DFLASH"], "draft-model-path": ["/models/drafter"]}),
    (
        Arm("ddtree-b15", "DDTREE", draft_budget=15, tree_top_k=8),
        {
            "algorithm": ["DDTREE"],
            "draft-model-path": ["/models/drafter"],
            "num-draft-tokens": ["16"],
            "dflash-block-size": ["8"],
        },
    ),
    (
        Arm("eagle3", "EAGLE3", draft_tokens=4, flags={"speculative-num-steps": 3, "speculative_eagle_topk": 1}),
        {
            "algorithm": ["EAGLE3"],
            "draft-model-path": ["/models/drafter"],
            "num-draft-tokens": ["4"],
            "num-steps": ["3"],
            "eagle-topk": ["1"],
        },
    ),
    (
        Arm("mtp", "NEXTN", draft_tokens=4, flags={"--speculative-num-steps": 3}),
        {"algorithm": ["NEXTN"], "num-draft-tokens": ["4"], "num-steps": ["3"]},
    ),
    (Arm("ngram", "NGRAM", draft_tokens=12), {"algorithm": ["NGRAM"], "num-draft-tokens": ["12"]}),
    (
        Arm("small", "STANDALONE", draft_tokens=5),
        {"algorithm": ["STANDALONE"], "draft-model-path": ["/models/drafter"], "num-draft-tokens": ["5"]},
    ),
    (
        Arm("dspark", "DSPARK", draft_tokens=8),
        {"algorithm": ["DSPARK"], "draft-model-path": ["/models/drafter"], "dspark-block-size": ["7"]},
    ),
    (
        Arm("mine", "OTHER", draft_tokens=9, algorithm="MYTREE", flags={"speculative-token-map": "/m/map.pt"}),
        {"algorithm": ["MYTREE"], "num-draft-tokens": ["9"], "token-map": ["/m/map.pt"]},
    ),
]


def parse(command: list[str]) -> dict[str, list[str]]:
    """Read a command back: flag -> its values."""
    flags: dict[str, list[str]] = {}
    for argument in command:
        if argument.startswith("--"):
            flags[argument] = []
        elif flags:
            flags[next(reversed(flags))].append(argument)
    return flags


def sglang(arm: Arm, serving: ServingConfig = SERVING, engine: EngineConfig = SGLANG, **changes: object) -> list[str]:
    """Build a command with the tests' usual inputs."""
    inputs: dict[str, object] = {
        "python": "/opt/sglang/bin/python",
        "target": "/models/target",
        "drafter": "/models/drafter",
        "served_model_name": "session-1",
        "random_seed": 7,
        "device": "cuda",
        "tp": 4,
        "drafter_block_size": 8,
        **changes,
    }
    return sglang_command(arm, serving, engine, **inputs)


def embedded(arm: Arm, engine: EngineConfig = EMBEDDED, **changes: object) -> list[str]:
    """Build a command with the tests' usual inputs."""
    inputs: dict[str, object] = {
        "python": "python",
        "target": "target",
        "drafter": "drafter",
        "served_model_name": "session-1",
        "random_seed": 7,
        "device": "cpu",
        "dtype": "bfloat16",
        "threads": 2,
        **changes,
    }
    return embedded_command(arm, SERVING, engine, **inputs)


@pytest.mark.parametrize(("arm", "speculation"), SPECULATION, ids=[arm.name for arm, _ in SPECULATION])
def test_sglang_arms_differ_in_speculation_only(arm: Arm, speculation: dict[str, list[str]]) -> None:
    """Every arm gets all shared settings, explicitly, and its own speculative flags, nothing else."""
    command = sglang(arm)
    expected = {f"--speculative-{name}": values for name, values in speculation.items()}
    assert command[:3] == ["/opt/sglang/bin/python", "-m", "sglang.launch_server"]
    assert parse(command) == SHARED | expected
    assert repeated_flags(command) == []


def test_sglang_overlap_is_on_by_leaving_the_flag_out() -> None:
    """SGLang has only the flag that switches overlap off."""
    command = sglang(Arm("ar", "AR"), SERVING.model_copy(update={"overlap_schedule": True}))
    assert "--disable-overlap-schedule" not in command


@pytest.mark.parametrize("name", ["memory_fraction", "page_size", "attention_backend", "cuda_graph_max_batch"])
def test_sglang_settings_whose_default_depends_on_the_arm_must_be_set(name: str) -> None:
    """The message names the key of the config."""
    with pytest.raises(ConfigError, match=rf"serving\.{name} is not set"):
        sglang(Arm("ar", "AR"), SERVING.model_copy(update={name: None}))


def test_a_tree_without_a_known_block_is_refused() -> None:
    """DDTree drafts from the drafter's block, whose size no other flag tells."""
    with pytest.raises(ConfigError, match="block size is not known"):
        sglang(Arm("ddtree-b15", "DDTREE", draft_budget=15), drafter_block_size=None)


@pytest.mark.parametrize("build", [sglang, embedded])
def test_a_missing_drafter_is_refused(build: object) -> None:
    """On both engines, with the arm's name and the key to set."""
    with pytest.raises(ConfigError, match=r"arms\.dflash: DFLASH drafts with a checkpoint; set `drafter`"):
        build(Arm("dflash", "DFLASH"), drafter=None)  # type: ignore[operator]


def test_engine_flags_reach_every_arm_and_an_arm_can_override_them() -> None:
    """A free flag of the arm wins over the engine's; the launcher can be replaced."""
    engine = SGLANG.model_copy(
        update={
            "flags": {"kv_cache_dtype": "fp8_e4m3", "trust-remote-code": True, "enable-metrics": False},
            "launcher": ("tests/fakes/stub_server.py",),
        }
    )
    plain = parse(sglang(Arm("ar", "AR"), engine=engine))
    changed = parse(sglang(Arm("ar", "AR", flags={"--kv-cache-dtype": "auto"}), engine=engine))
    assert plain["--kv-cache-dtype"] == ["fp8_e4m3"]
    assert plain["--trust-remote-code"] == []
    assert "--enable-metrics" not in plain
    assert changed["--kv-cache-dtype"] == ["auto"]
    assert sglang(Arm("ar", "AR"), engine=engine)[1] == "tests/fakes/stub_server.py"


EMBEDDED_SHARED = {
    "--model-path": ["target"],
    "--host": ["127.0.0.1"],
    "--port": ["{port}"],
    "--max-running-requests": ["32"],
    "--context-length": ["8192"],
    "--dtype": ["bfloat16"],
    "--device": ["cpu"],
    "--threads": ["2"],
    "--random-seed": ["7"],
    "--served-model-name": ["session-1"],
    "--incremental-streaming-output": [],
}
DRAFTED = {"--speculative-draft-model-path": ["drafter"]}


@pytest.mark.parametrize(
    ("arm", "speculation"),
    [
        (Arm("ar", "AR"), {}),
        (
            Arm("dflash", "DFLASH", draft_tokens=8),
            {"--speculative-algorithm": ["DFLASH"], "--speculative-num-draft-tokens": ["8"], **DRAFTED},
        ),
        (
            Arm("ddtree-b15", "DDTREE", draft_budget=15, tree_top_k=8),
            {
                "--speculative-algorithm": ["DDTREE"],
                "--speculative-ddtree-budget": ["15"],
                "--speculative-ddtree-topk": ["8"],
                **DRAFTED,
            },
        ),
    ],
)
def test_embedded_arms_differ_in_speculation_only(arm: Arm, speculation: dict[str, list[str]]) -> None:
    """The engine's own flags for trees, SGLang's for the rest."""
    command = embedded(arm)
    assert command[:3] == ["python", "-m", "draftbench.engine.server"]
    assert parse(command) == EMBEDDED_SHARED | speculation


def test_a_method_that_the_embedded_engine_lacks_is_refused() -> None:
    """Not silently run as something else."""
    with pytest.raises(ConfigError, match=r"arms\.eagle3\.method: the embedded engine has no EAGLE3"):
        embedded(Arm("eagle3", "EAGLE3"))


def test_free_flags() -> None:
    """Dashes in any form; True bare, False and repeats out; lists by spaces; JSON in one piece."""
    flags = free_flags(
        {"a_b": 1, "--c": True, "d": False, "sizes": "1 2 4", "json": '{"x": {"y": 1}}', "e": 0.5},
        {"--a-b": 2},
    )
    assert flags == ["--a-b", "2", "--c", "--sizes", "1", "2", "4", "--json", '{"x": {"y": 1}}', "--e", "0.5"]
    assert flag_name("page_size") == flag_name("--page-size") == "--page-size"
    assert repeated_flags(["--a", "1", "--b", "--a=2"]) == ["--a"]


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, [1]),
        (4, [1, 2, 3, 4]),
        (10, [1, 2, 3, 4, 5, 6, 7, 8, 10]),
        (18, [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 18]),
        (48, [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 28, 32, 40, 48]),
    ],
)
def test_graph_batch_sizes(largest: int, sizes: list[int]) -> None:
    """The largest batch itself always has a graph."""
    assert graph_batch_sizes(largest) == sizes
