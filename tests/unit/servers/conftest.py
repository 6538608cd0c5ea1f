"""Runs with a main process of their own, and servers that are real processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draftbench.servers.allocation import device_lock_path
from draftbench.servers.gpu_blocks import GpuDevice, pseudo_devices
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
        main = subprocess.Popen(["sleep", "600"])
        self.mains.append(main)
        identity = ProcessIdentity.of(main.pid)
        assert identity is not None
        run = RunContext(identity, self.folder / f"state-{len(self.runs)}", self.locks)
        self.runs.append(run)
        return run

    def kill_main(self, run: RunContext) -> None:
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
        for run in self.runs:
            stop_all(run)
        for main in self.mains:
            main.kill()
            main.wait()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node of its own for each test; nothing of it may be left afterwards."""
    node = Node(tmp_path)
    yield node
    node.close()
    assert node.servers_of_this_node() == []


@pytest.fixture
def run(node: Node) -> RunContext:
    """One run on the node."""
    return node.start_run()


@pytest.fixture
def make_spec(tmp_path: Path) -> SpecFactory:
    """Build specs of the minimal server; flags of the server come after the session's name."""

    def make(session: str, *flags: str, **fields: object) -> ServerSpec:
        fields.setdefault("device", "cpu")
        fields.setdefault("devices", pseudo_devices(2) if fields["device"] == "cpu" else TWO_NODES)
        fields.setdefault("environment", {"TEST_NODE": str(tmp_path)})
        settings = {"ready_timeout_s": 20.0, "lease_timeout_s": 20.0, "grace_s": 1.0, "spec_hash": "h1", **fields}
        return ServerSpec(
            session=session,
            command=(sys.executable, str(SERVER), "--port", "{port}", *flags),
            log_path=tmp_path / "logs" / f"{session}.log",
            probe_ids=(1, 2, 3),
            **settings,
        )

    return make


def gpu_indices(state: ServerState) -> list[int]:
    """Indices of a server's GPUs."""
    return [device.index for device in state.gpus]


__all__ = ["TWO_NODES", "Node", "SpecFactory", "device_lock_path", "gpu_indices"]
