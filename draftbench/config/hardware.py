"""Hardware: detected, or declared for planning and for stub servers."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from draftbench.config.section import Section


class HardwareConfig(Section):
    """A declared node; what is declared is held against the machine before anything is launched on a GPU."""

    gpus: Annotated[int, Field(ge=0, le=64)] = Field(description="GPUs of the node.")
    gpu_name: str = Field(default="unknown GPU", description="Name as nvidia-smi prints it.")
    gpu_memory_gib: Annotated[float, Field(gt=0)] | None = Field(default=None, description="Memory of one GPU, GiB.")
    memory_bandwidth_gb_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Memory bandwidth of one GPU, GB/s; the data sheet's, for duration estimates.",
    )
    numa_nodes: tuple[tuple[int, ...], ...] = Field(
        default=(), description="GPU numbers a NUMA node; empty = one node holds all."
    )
    source: str = Field(default="declared in the config", description="Where these numbers come from.")

    @model_validator(mode="after")
    def _nodes_cover_the_gpus(self) -> Self:
        listed = [gpu for node in self.numa_nodes for gpu in node]
        if self.numa_nodes and sorted(listed) != list(range(self.gpus)):
            raise ValueError(f"numa_nodes must name each GPU from 0 to {self.gpus - 1} once")
        return self
