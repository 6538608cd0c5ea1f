"""How a keeper starts its server: environment, descriptors, and the first record of it."""

import os
import subprocess
from collections.abc import Mapping

from draftbench.servers import server_state
from draftbench.servers.keeper_messages import KeeperOrder
from draftbench.servers.processes import MARK_VARIABLE, ProcessIdentity, die_with_parent
from draftbench.servers.server_state import ServerState

# Snakemake sets these to the threads of whichever job happened to start the server.
_JOB_VARIABLES = (
    "OMP_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def server_environment(order: KeeperOrder, mark: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Build the server's environment: what the job has, the leased GPUs, the spec's own variables, the mark."""
    kept = {name: value for name, value in inherited.items() if name not in _JOB_VARIABLES}
    return {
        **kept,
        # By index: SGLang reads the entries as numbers. In PCI order, which is NVML's.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": gpu_numbers(order) if order.spec.device == "cuda" else "",
        "PYTHONUNBUFFERED": "1",
        **order.spec.environment,
        MARK_VARIABLE: mark,
    }


def gpu_numbers(order: KeeperOrder) -> str:
    """Indices of the served GPUs, as CUDA_VISIBLE_DEVICES has them."""
    return ",".join(str(device.index) for device in order.gpus)


def start_server(order: KeeperOrder, command: list[str], mark: str) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own; it inherits the locks, and dies with the calling keeper.

    Raises OSError when the program cannot be run.
    """
    with order.spec.log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            env=server_environment(order, mark, os.environ),
            cwd=order.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=order.lock_descriptors,
            start_new_session=True,
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - the keeper has one thread yet
        )


def describe_start(
    order: KeeperOrder, command: list[str], mark: str, server_pid: int, log_offset: int, started_unix_s: float
) -> ServerState:
    """Write down a server that has just been started by the calling keeper."""
    # A server that has died already is a zombie until it is waited for: no start time is then right.
    server = ProcessIdentity.of(server_pid) or ProcessIdentity(pid=server_pid, starttime=0)
    spec = order.spec
    return ServerState(
        session=spec.session,
        spec_hash=spec.spec_hash,
        instance_id=server_state.new_instance_id(server_pid),
        phase="starting",
        main=order.main,
        keeper=ProcessIdentity.current(),
        server=server,
        mark=mark,
        device=spec.device,
        gpus=order.gpus,
        held=order.held,
        aligned=order.aligned,
        port=order.port,
        nccl_port=order.nccl_port,
        url=f"http://127.0.0.1:{order.port}",
        log_path=spec.log_path,
        log_offset=log_offset,
        command=tuple(command),
        started_unix_s=started_unix_s,
        stop_timeout_s=spec.grace_s + spec.memory_timeout_s + 15.0,
    )
