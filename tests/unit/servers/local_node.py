"""A node of its own for a test: a lock folder, and runs whose main processes can be killed."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from draftbench.servers.gpu_blocks import GpuDevice
from draftbench.servers.leases import stop_all
from draftbench.servers.locks import is_free
from draftbench.servers.ports import can_bind, port_lock_path
from draftbench.servers.processes import MARK_VARIABLE, ProcessIdentity
from draftbench.servers.server_spec import RunContext, ServerSpec
from draftbench.servers.server_state import ServerState

SERVER = Path(__file__).with_name("minimal_server.py")
TWO_NODES = tuple(GpuDevice(index=index, uuid=f"GPU-{index:04d}", numa_node=index // 4) for index in range(8))

SpecFactory = Callable[..., ServerSpec]


class Node:
    """One node's lock folder and the runs on it, each with a main process that can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locks = folder / "locks"
        self.mains: list[subprocess.Popen[bytes]] = []
        self.runs: list[RunContext] = []

    def start_run(self) -> RunContext:
        """Begin a run; its main process is a `sleep`."""
        main = subprocess.Popen(["sleep", "600"])
        self.mains.append(main)
        identity = ProcessIdentity.of(main.pid)
        assert identity is not None
        run = RunContext(identity, self.folder / f"state-{len(self.runs)}", self.locks)
        self.runs.append(run)
        return run

    def kill_main(self, run: RunContext) -> None:
        """SIGKILL the run's main process, as if it were Snakemake."""
        main = self.mains[self.runs.index(run)]
        main.kill()
        main.wait()

    def servers_of_this_node(self) -> list[int]:
        """Pids of everything that carries a mark and was started with this node's folder in its arguments."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    environment = (folder / "environ").read_bytes()
                except OSError:
                    continue
                if f"{MARK_VARIABLE}=".encode() in environment and str(self.folder).encode() in environment:
                    found.append(int(folder.name))
        return found

    def is_clean(self, *states: ServerState) -> bool:
        """Whether no server process is left, and all GPU and port locks and ports are free."""
        return (
            not self.servers_of_this_node()
            and all(is_free(path) for path in self.locks.glob("gpu-*.lock"))
            and all(is_free(port_lock_path(self.locks, state.port)) and can_bind(state.port) for state in states)
        )

    def close(self) -> None:
        """Stop all servers and main processes."""
        for run in self.runs:
            stop_all(run)
        for main in self.mains:
            main.kill()
            main.wait()


def gpu_indices(state: ServerState) -> list[int]:
    """Indices of a server's GPUs."""
    return [device.index for device in state.gpus]
