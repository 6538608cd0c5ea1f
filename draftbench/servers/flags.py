"""From an arm to the argument list of its server: pure functions, one an engine.

Arms of a comparison differ in speculation only, so every other setting that decides speed is set explicitly,
never left to a default that depends on the algorithm.
Flag names: SGLang 0.5.17, `server_args.py`.
"""

from collections.abc import Mapping, Sequence

from draftbench.config import Arm, EngineConfig, ServingConfig
from draftbench.config.arms import NEEDS_DRAFTER
from draftbench.errors import ConfigError
from draftbench.servers.server_spec import NCCL_PORT_PLACEHOLDER, PORT_PLACEHOLDER

FlagValue = str | int | float | bool
HOST = "127.0.0.1"
EMBEDDED_LAUNCHER = ("-m", "draftbench.engine.server")
SGLANG_LAUNCHER = ("-m", "sglang.launch_server")
EMBEDDED_METHODS = frozenset({"AR", "DFLASH", "DDTREE"})


def embedded_command(
    arm: Arm,
    serving: ServingConfig,
    engine: EngineConfig,
    *,
    python: str,
    target: str,
    drafter: str | None,
    served_model_name: str,
    random_seed: int,
    device: str,
    dtype: str,
    threads: int | None,
) -> list[str]:
    """Build the command of the embedded engine.

    `device`, `dtype` and `threads` are the resolved ones, not "auto".
    Raises ConfigError for a method that this engine lacks.
    """
    if arm.method not in EMBEDDED_METHODS:
        raise ConfigError(
            f"arms.{arm.name}.method: the embedded engine has no {arm.method}; "
            f"it has {', '.join(sorted(EMBEDDED_METHODS))}"
        )
    return [
        python,
        *(engine.launcher or EMBEDDED_LAUNCHER),
        "--model-path", target,
        *_embedded_speculation(arm, drafter),
        "--host", HOST,
        "--port", PORT_PLACEHOLDER,
        "--max-running-requests", str(serving.max_running_requests),
        "--context-length", str(serving.context_length),
        "--dtype", dtype,
        "--device", device,
        *([] if threads is None else ["--threads", str(threads)]),
        "--random-seed", str(random_seed),
        "--served-model-name", served_model_name,
        "--incremental-streaming-output",
        *free_flags(engine.flags, arm.flags),
    ]  # fmt: skip


def _embedded_speculation(arm: Arm, drafter: str | None) -> list[str]:
    if arm.method == "AR":
        return []
    algorithm = ["--speculative-algorithm", arm.method, *_drafter_flags(arm, drafter)]
    if arm.method == "DFLASH":
        return [*algorithm, *_optional("--speculative-num-draft-tokens", arm.draft_tokens)]
    return [
        *algorithm,
        *_optional("--speculative-ddtree-budget", arm.draft_budget),
        *_optional("--speculative-ddtree-topk", arm.tree_top_k),
    ]


def sglang_command(
    arm: Arm,
    serving: ServingConfig,
    engine: EngineConfig,
    *,
    python: str,
    target: str,
    drafter: str | None,
    served_model_name: str,
    random_seed: int,
    device: str,
    tp: int,
    drafter_block_size: int | None = None,
) -> list[str]:
    """Build the command of `sglang.launch_server`.

    `drafter_block_size` is the DFlash drafter's own block; a DDTREE arm needs it, the verify width being another.
    Raises ConfigError for a missing drafter or serving setting.
    """
    return [
        python,
        *(engine.launcher or SGLANG_LAUNCHER),
        "--model-path", target,
        "--served-model-name", served_model_name,
        "--host", HOST,
        "--port", PORT_PLACEHOLDER,
        "--nccl-port", NCCL_PORT_PLACEHOLDER,
        "--tp-size", str(tp),
        "--device", device,
        "--dtype", engine.dtype,
        "--random-seed", str(random_seed),
        "--context-length", str(serving.context_length),
        *_sglang_scheduling(serving),
        "--incremental-streaming-output",
        *_sglang_speculation(arm, drafter, drafter_block_size),
        *free_flags(engine.flags, arm.flags),
    ]  # fmt: skip


def _sglang_scheduling(serving: ServingConfig) -> list[str]:
    """Settings whose defaults depend on the algorithm, so that each arm must name them."""
    required = {
        "memory_fraction": serving.memory_fraction,
        "page_size": serving.page_size,
        "attention_backend": serving.attention_backend,
        "cuda_graph_max_batch": serving.cuda_graph_max_batch,
    }
    unset = [name for name, value in required.items() if value is None]
    if unset:
        raise ConfigError(
            f"serving.{unset[0]} is not set; SGLang's default differs between arms, so name it"
            + (f" (and {', '.join(unset[1:])})" if unset[1:] else "")
        )
    return [
        "--max-running-requests", str(serving.max_running_requests),
        "--mem-fraction-static", str(serving.memory_fraction),
        "--page-size", str(serving.page_size),
        "--attention-backend", str(serving.attention_backend),
        "--cuda-graph-max-bs-decode", str(serving.cuda_graph_max_batch),
        "--cuda-graph-bs-decode", *map(str, graph_batch_sizes(serving.cuda_graph_max_batch or 1)),
        *([] if serving.overlap_schedule else ["--disable-overlap-schedule"]),
    ]  # fmt: skip


def graph_batch_sizes(largest: int) -> list[int]:
    """Batches with a captured decode graph, equal for every arm: all to 8, then every 4th to 32, every 8th beyond."""
    sizes = {*range(1, min(largest, 8) + 1), *range(8, min(largest, 32) + 1, 4), *range(32, largest + 1, 8), largest}
    return sorted(size for size in sizes if size <= largest)


def _sglang_speculation(arm: Arm, drafter: str | None, drafter_block_size: int | None) -> list[str]:
    if arm.method == "AR":
        return []
    algorithm = arm.algorithm if arm.method == "OTHER" else arm.method
    assert algorithm is not None
    return [
        "--speculative-algorithm",
        algorithm,
        *_drafter_flags(arm, drafter),
        *_sglang_widths(arm, drafter_block_size),
    ]


def _sglang_widths(arm: Arm, drafter_block_size: int | None) -> list[str]:
    """Sizes of draft and verify pass; steps and top-k of the EAGLE family stand in the arm's own flags."""
    if arm.method == "DDTREE":
        if drafter_block_size is None:
            raise ConfigError(f"arms.{arm.name}: the drafter's block size is not known; a tree is drafted from a block")
        return [
            *_optional("--speculative-num-draft-tokens", arm.verify_width),
            "--speculative-dflash-block-size",
            str(drafter_block_size),
        ]
    if arm.method == "DSPARK" and arm.draft_tokens is not None:
        return ["--speculative-dspark-block-size", str(arm.draft_tokens - 1)]  # gamma: the root is not counted
    return _optional("--speculative-num-draft-tokens", arm.draft_tokens)


def _drafter_flags(arm: Arm, drafter: str | None) -> list[str]:
    if drafter is None and arm.method in NEEDS_DRAFTER:
        raise ConfigError(f"arms.{arm.name}: {arm.method} drafts with a checkpoint; set `drafter`")
    if arm.method == "NGRAM":
        return []
    return _optional("--speculative-draft-model-path", drafter if arm.method in NEEDS_DRAFTER else None)


def _optional(flag: str, value: object) -> list[str]:
    return [] if value is None else [flag, str(value)]


def free_flags(*layers: Mapping[str, FlagValue]) -> list[str]:
    """Turn the engine's own flags into arguments; a later layer wins.

    Names come with or without dashes in front, with dashes or underscores inside.
    True is a bare flag, False leaves it out; a value with spaces becomes several arguments.
    """
    merged: dict[str, FlagValue] = {}
    for layer in layers:
        merged.update({flag_name(name): value for name, value in layer.items()})
    return [argument for name, value in merged.items() for argument in _flag_arguments(name, value)]


def flag_name(name: str) -> str:
    """Write a flag as the command line has it: `page_size` is `--page-size`."""
    return "--" + name.lstrip("-").replace("_", "-")


def _flag_arguments(name: str, value: FlagValue) -> list[str]:
    if isinstance(value, bool):
        return [name] if value else []
    if isinstance(value, str) and not value.lstrip().startswith(("{", "[")):  # JSON stays in one piece
        return [name, *value.split()]
    return [name, str(value)]


def repeated_flags(command: Sequence[str]) -> list[str]:
    """Name the flags that a command has twice: a free flag must not contradict what every arm is given."""
    flags = [argument.partition("=")[0] for argument in command if argument.startswith("--")]
    return sorted({flag for flag in flags if flags.count(flag) > 1})
