"""What a job asks for: one server, fully described, and the run it belongs to."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from draftbench.errors import LeaseError
from draftbench.servers.gpu_blocks import GpuDevice
from draftbench.servers.processes import ProcessIdentity

PORT_PLACEHOLDER = "{port}"
NCCL_PORT_PLACEHOLDER = "{nccl_port}"

SessionKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]  # names files
Seconds = Annotated[float, Field(ge=0)]


class ServerSpec(BaseModel):
    """One server: what is started, where it may run, and how its readiness and identity are known.

    A running server is reused only by a spec with the same `session` and `spec_hash`.
    `devices` are the GPUs that may be used (`gpu_blocks.visible_devices`), or the pseudo devices of a CPU;
    a CPU server and an `exclusive` one hold all of them, so that nothing runs beside it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session: SessionKey
    spec_hash: str
    command: tuple[str, ...] = Field(min_length=1)
    environment: dict[str, str] = {}
    device: Literal["cuda", "cpu"]
    tp: Annotated[int, Field(ge=1)] = 1
    devices: tuple[GpuDevice, ...] = Field(min_length=1)
    exclusive: bool = False
    port: int | None = None
    log_path: Path
    working_dir: Path | None = None
    probe_ids: tuple[int, ...] = Field(min_length=1)
    probe_tokens: Annotated[int, Field(ge=1)] = 4
    expected_info: dict[str, Any] = {}
    ready_timeout_s: Seconds = 600.0
    lease_timeout_s: Seconds = 600.0
    alignment_wait_s: Seconds = 600.0
    grace_s: Seconds = 15.0
    idle_timeout_s: Seconds = 900.0
    hang_timeout_s: Seconds = 120.0
    memory_timeout_s: Seconds = 60.0

    @model_validator(mode="after")
    def _tp_fits_the_devices(self) -> Self:
        if self.device == "cuda" and self.tp > len(self.devices):
            raise LeaseError(
                f"{self.session}: tensor parallelism {self.tp} needs {self.tp} GPUs, "
                f"but {len(self.devices)} can be used here"
            )
        if len({device.index for device in self.devices}) != len(self.devices):
            raise ValueError("devices names a GPU twice")
        return self

    @property
    def takes_all_devices(self) -> bool:
        """Whether nothing may run beside this server."""
        return self.exclusive or self.device == "cpu"

    @property
    def needs_nccl_port(self) -> bool:
        """Whether the command has a place for NCCL's port."""
        return any(NCCL_PORT_PLACEHOLDER in argument for argument in self.command)

    def command_line(self, port: int, nccl_port: int | None) -> list[str]:
        """Fill in the ports; other braces (JSON arguments) stay as they are."""
        return [
            argument.replace(PORT_PLACEHOLDER, str(port)).replace(NCCL_PORT_PLACEHOLDER, str(nccl_port))
            for argument in self.command
        ]


@dataclass(frozen=True)
class RunContext:
    """One Snakemake run: its main process, its own state folder, and the node's lock folder.

    Servers belong to a run and end with its main process; GPU and port locks belong to the node.
    """

    main: ProcessIdentity
    state_dir: Path
    node_lock_dir: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read DRAFTBENCH_MAIN, DRAFTBENCH_STATE and DRAFTBENCH_LOCKS, which the Snakefile sets.

        Raises LeaseError when one is missing.
        """
        names = ("DRAFTBENCH_MAIN", "DRAFTBENCH_STATE")
        missing = [name for name in names if not environment.get(name)]
        if missing:
            raise LeaseError(f"{' and '.join(missing)} not set: servers are leased inside a Snakemake run only")
        locks = environment.get("DRAFTBENCH_LOCKS")
        return cls(
            main=ProcessIdentity.parse(environment["DRAFTBENCH_MAIN"]),
            state_dir=Path(environment["DRAFTBENCH_STATE"]).resolve(),
            node_lock_dir=Path(locks).resolve() if locks else default_node_lock_dir(environment),
        )

    def to_environment(self) -> dict[str, str]:
        """Name this run to the jobs that it starts."""
        return {
            "DRAFTBENCH_MAIN": str(self.main),
            "DRAFTBENCH_STATE": str(self.state_dir),
            "DRAFTBENCH_LOCKS": str(self.node_lock_dir),
        }

    def require_alive(self) -> None:
        """Raise LeaseError when the run's main process is gone: nothing may be started for a dead run."""
        if not self.main.is_alive():
            raise LeaseError(f"the run (process {self.main}) is gone; its jobs start no servers")


def default_node_lock_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's lock folder on this node, the same for all runs; never on a shared file system."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "draftbench"
    return Path(f"/tmp/draftbench-{os.getuid()}")  # noqa: S108 - one fixed place per user is the point
