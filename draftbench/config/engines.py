"""Engines: who serves, and the settings that are equal for every arm."""

from typing import Annotated, Literal

from pydantic import Field

from draftbench.config.section import Section


class EngineConfig(Section):
    """One entry of `engines`: a server program and the environment it runs in."""

    kind: Literal["embedded", "sglang"] = Field(description="Which launch flags and contract the server has.")
    python: str = Field(description="Interpreter of the engine's own environment; relative to the project folder.")
    launcher: tuple[str, ...] | None = Field(
        default=None,
        description="Arguments after the interpreter that start the server; null = the engine's own module.",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Environment variables of the server, for example LD_LIBRARY_PATH."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto takes the GPUs where there are any, else the CPU."
    )
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = Field(
        default="auto", description="Embedded: auto = a short self-test picks bfloat16 or float32."
    )
    threads: Annotated[int, Field(ge=1, le=512)] | None = Field(
        default=None, description="CPU threads of the embedded engine; null = a short self-test picks."
    )
    flags: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Further launch flags for every arm, by the engine's own names."
    )


class ServingConfig(Section):
    """Server settings that must be the same for every arm of a comparison."""

    max_running_requests: Annotated[int, Field(ge=1)] = Field(
        description="Requests decoded together at most; at least the highest concurrency."
    )
    context_length: Annotated[int, Field(ge=128)] = Field(description="Prompt and output tokens a request may have.")
    memory_fraction: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="SGLang: share of a GPU's memory for weights and KV cache."
    )
    page_size: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="SGLang: tokens a KV page; tree arms need 1."
    )
    overlap_schedule: bool = Field(
        default=True, description="SGLang: prepare the next step while the GPU runs; the same for every arm."
    )
    attention_backend: str | None = Field(
        default=None, description="SGLang: attention kernels; tree masks need triton or flashinfer."
    )
    cuda_graph_max_batch: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="SGLang: largest batch with a captured graph; at least the highest concurrency.",
    )
    port: Annotated[int, Field(ge=1024, le=65535)] | None = Field(
        default=None,
        description="A fixed port of the servers; null = any free one, needed where two run side by side.",
    )
    startup_timeout: Annotated[float, Field(gt=0)] = Field(
        default=600.0, description="Seconds from launch until the first real generation must have succeeded."
    )
    hang_timeout: Annotated[float, Field(gt=0)] = Field(
        default=120.0,
        description="Seconds without a token on any stream after which a server counts as hung.",
    )
    stop_grace: Annotated[float, Field(ge=0)] = Field(
        default=15.0, description="Seconds between TERM and KILL when a server is stopped."
    )
