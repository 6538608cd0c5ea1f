"""GPUs and ports for a server that is about to start: chosen, cleared of idle servers, and locked."""

import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from draftbench.errors import LeaseError
from draftbench.servers import server_state
from draftbench.servers.gpu_blocks import BlockChoice, GpuDevice, Occupancy, choose_block
from draftbench.servers.locks import FileLock, is_free, read_holder, released_on_error, try_take_all
from draftbench.servers.ports import take_port
from draftbench.servers.processes import ProcessIdentity, reap_marked, wait_until
from draftbench.servers.server_spec import RunContext, ServerSpec
from draftbench.servers.server_state import ServerState

RETRY_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Allocation:
    """GPUs to be served on, GPUs held, ports, and the locks of all of them."""

    gpus: tuple[GpuDevice, ...]
    held: tuple[GpuDevice, ...]
    aligned: bool
    port: int
    nccl_port: int | None
    locks: list[FileLock]


def allocate(spec: ServerSpec, run: RunContext) -> Allocation:
    """Wait for GPUs and ports.

    It cannot deadlock: a job runs only when Snakemake granted it tp GPUs, so that what must be evicted is idle.
    Raises LeaseError when other runs hold the GPUs for longer than the lease timeout.
    """
    start = time.monotonic()
    while True:
        waited = time.monotonic() - start
        with FileLock.take(run.state_dir / "allocation.lock", None, "the allocation", run.require_alive):
            allocation = _try_allocate(spec, run, allow_unaligned=waited >= spec.alignment_wait_s)
        if allocation is not None:
            return allocation
        if waited >= spec.lease_timeout_s:
            raise LeaseError(_still_held(spec, run))
        run.require_alive()
        time.sleep(RETRY_INTERVAL_S)


def _try_allocate(spec: ServerSpec, run: RunContext, allow_unaligned: bool) -> Allocation | None:
    states = _living_states(run)
    occupancy = _observe(spec, run, states)
    choice = _choose(spec, occupancy, server_state.read_previous_block(run, spec.session), allow_unaligned)
    if choice is None:
        return None
    on_same_port = [state.session for state in states if state.port == spec.port]
    idle = set(occupancy.idle_servers or {})
    for session in sorted({*choice.evict, *on_same_port} & idle):
        if not _evict(run, session):
            return None
    held = spec.devices if spec.takes_all_devices else choice.devices
    locks = try_take_all([device_lock_path(run, device) for device in held])
    if locks is None:
        return None
    with released_on_error(locks):
        return _with_ports(spec, run, choice, held, locks)


def _choose(
    spec: ServerSpec, occupancy: Occupancy, previous: tuple[int, ...], allow_unaligned: bool
) -> BlockChoice | None:
    if not spec.takes_all_devices:
        return choose_block(spec.devices, spec.tp, occupancy, previous, allow_unaligned)
    if any(device.index in occupancy.busy for device in spec.devices):
        return None
    evict = tuple(occupancy.evicted_by(spec.devices))
    if spec.device == "cpu":
        return BlockChoice(spec.devices, evict, aligned=True)
    block = choose_block(spec.devices, spec.tp, Occupancy())
    assert block is not None
    return BlockChoice(block.devices, evict, block.aligned)


def _with_ports(
    spec: ServerSpec, run: RunContext, choice: BlockChoice, held: tuple[GpuDevice, ...], locks: list[FileLock]
) -> Allocation:
    port, port_lock = take_port(run.node_lock_dir, spec.port)
    locks.append(port_lock)
    nccl_port = None
    if spec.needs_nccl_port:
        nccl_port, nccl_lock = take_port(run.node_lock_dir)
        locks.append(nccl_lock)
    return Allocation(choice.devices, held, choice.aligned, port, nccl_port, locks)


def _living_states(run: RunContext) -> list[ServerState]:
    """Drop what is recorded of dead servers, after reaping what they left."""
    living = []
    for state in server_state.all_states(run):
        if state.is_running():
            living.append(state)
        elif not state.keeper.is_alive():
            stop_server(run, state)
    return living


def _observe(spec: ServerSpec, run: RunContext, states: Iterable[ServerState]) -> Occupancy:
    idle = {
        state.session: (
            frozenset(device.index for device in state.held),
            server_state.last_used(run, state.session),
        )
        for state in states
        if state.main == run.main and state.session != spec.session and not server_state.is_busy(run, state.session)
    }
    evictable = {index for held, _ in idle.values() for index in held}
    busy = {
        device.index
        for device in spec.devices
        if device.index not in evictable and not _is_lock_free(device_lock_path(run, device))
    }
    return Occupancy(frozenset(busy), idle)


def _is_lock_free(path: Path) -> bool:
    """Whether a device can be had; what a killed keeper left on it is ended first."""
    if is_free(path):
        return True
    mark = read_holder(path)
    keeper = keeper_of(mark)
    if keeper is None or keeper.is_alive() or reap_marked(mark) == 0:
        return False
    return is_free(path)


def keeper_of(mark: str) -> ProcessIdentity | None:
    """The keeper that a mark `pid:starttime:session` names."""
    parts = mark.split(":", 2)
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return ProcessIdentity(pid=int(parts[0]), starttime=int(parts[1]))


def _evict(run: RunContext, session: str) -> bool:
    """Stop an idle server; False when a job has just taken it."""
    busy = FileLock.try_take(server_state.busy_lock_path(run, session))
    if busy is None:
        return False
    with busy:
        state = server_state.read_state(run, session)
        if state is not None:
            stop_server(run, state)
    return True


def stop_server(run: RunContext, state: ServerState) -> None:
    """Stop a server through its keeper, and by force where the keeper is gone or does not manage."""
    state.keeper.send(signal.SIGTERM)
    if not wait_until(lambda: not state.keeper.is_alive(), state.stop_timeout_s):
        state.keeper.send(signal.SIGKILL)
    state.server.send_to_group(signal.SIGKILL)
    reap_marked(state.mark)
    current = server_state.read_state(run, state.session)
    if current is not None and current.instance_id == state.instance_id:
        server_state.state_path(run, state.session).unlink(missing_ok=True)


def device_lock_path(run: RunContext, device: GpuDevice) -> Path:
    """Where the node's lock of a device lies."""
    return run.node_lock_dir / f"{device.lock_name}.lock"


def _still_held(spec: ServerSpec, run: RunContext) -> str:
    held = [device for device in spec.devices if not is_free(device_lock_path(run, device))]
    holders = sorted({read_holder(device_lock_path(run, device)).split(":", 2)[-1] or "someone" for device in held})
    numbers = ", ".join(str(device.index) for device in held) or "?"
    return (
        f"{spec.session}: GPU {numbers} still held after {spec.lease_timeout_s:g} s by {', '.join(holders)}; "
        "wait for the other run on this node, or stop it"
    )
