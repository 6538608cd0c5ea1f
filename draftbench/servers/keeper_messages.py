"""What a job and its keeper say to each other: an order on stdin, one report on stdout."""

import contextlib
import os
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from draftbench.servers.failure_classes import FailureClass
from draftbench.servers.gpu_blocks import GpuDevice
from draftbench.servers.processes import ProcessIdentity
from draftbench.servers.server_spec import RunContext, ServerSpec


class KeeperOrder(BaseModel):
    """What a job hands to its keeper: the spec, what was allocated, and the locks' descriptors."""

    model_config = ConfigDict(frozen=True, defer_build=True)  # not built by jobs that start nothing

    spec: ServerSpec
    main: ProcessIdentity
    state_dir: Path
    node_lock_dir: Path
    gpus: tuple[GpuDevice, ...]
    held: tuple[GpuDevice, ...]
    aligned: bool
    port: int
    nccl_port: int | None
    lock_descriptors: tuple[int, ...]
    working_dir: Path

    @property
    def run(self) -> RunContext:
        """The run that the server belongs to."""
        return RunContext(self.main, self.state_dir, self.node_lock_dir)


class KeeperReport(BaseModel):
    """The keeper's one answer on stdout: ready, or why not; `log_tail` is None when no server was started."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    ready: bool
    reason: str = ""
    failure_class: FailureClass | None = None
    log_tail: str | None = None


def send_report(message: KeeperReport) -> None:
    """Answer the waiting job, and close the pipe; a job that is gone does not matter."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(message.model_dump_json())
        sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
