"""Which GPUs a session gets: an aligned block of tp devices, inside one NUMA node where the topology allows.

Pure: inventory, what is busy and what is idle go in, a block comes out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from draftbench.errors import LeaseError


class GpuDevice(BaseModel):
    """One accelerator of the node; on a CPU a pseudo device, one of the units that a session takes."""

    model_config = ConfigDict(frozen=True)

    index: int
    uuid: str | None = None
    numa_node: int | None = None

    @property
    def lock_name(self) -> str:
        """Names the device's lock: by UUID where known, since indices change with CUDA_VISIBLE_DEVICES."""
        return f"gpu-{self.uuid or self.index}"


def pseudo_devices(units: int) -> tuple[GpuDevice, ...]:
    """Build the units of a machine without GPUs."""
    assert units >= 1
    return tuple(GpuDevice(index=index) for index in range(units))


def visible_devices(inventory: Sequence[GpuDevice], cuda_visible_devices: str | None) -> tuple[GpuDevice, ...]:
    """Keep what CUDA_VISIBLE_DEVICES (the user's, or Slurm's allocation) leaves, in its order.

    Entries are indices or UUIDs, a UUID may be shortened; as in CUDA, the list ends at the first unknown entry.
    Raises LeaseError when nothing is left of a list that was not empty by intent.
    """
    if cuda_visible_devices is None:
        return tuple(inventory)
    chosen: list[GpuDevice] = []
    for entry in (part.strip() for part in cuda_visible_devices.split(",")):
        device = _find_device(inventory, entry)
        if device is None:
            break
        chosen.append(device)
    if not chosen and cuda_visible_devices.strip() not in ("", "-1", "NoDevFiles"):
        raise LeaseError(f"CUDA_VISIBLE_DEVICES={cuda_visible_devices!r} names no GPU of this node")
    return tuple(chosen)


def _find_device(inventory: Sequence[GpuDevice], entry: str) -> GpuDevice | None:
    if entry.isdigit():
        return next((device for device in inventory if device.index == int(entry)), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    matches = [device for device in inventory if device.uuid is not None and device.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


Block = tuple[GpuDevice, ...]


def aligned_blocks(devices: Sequence[GpuDevice], tp: int) -> list[Block]:
    """List the blocks that a session of this tp should use.

    Inside each NUMA node, runs of tp devices that start at a multiple of tp; if no node holds tp devices,
    the same over the whole node-by-node list.
    """
    groups = numa_groups(devices)
    inside = [block for group in groups for block in _runs(group, tp)]
    return inside or _runs([device for group in groups for device in group], tp)


def all_blocks(devices: Sequence[GpuDevice], tp: int) -> list[Block]:
    """List every run of tp devices of the node-by-node list, aligned or not: the last resort."""
    ordered = [device for group in numa_groups(devices) for device in group]
    return [tuple(ordered[start : start + tp]) for start in range(len(ordered) - tp + 1)]


def numa_groups(devices: Sequence[GpuDevice]) -> list[list[GpuDevice]]:
    """Group devices by NUMA node, in the order of their indices; unknown nodes form one group."""
    groups: dict[int | None, list[GpuDevice]] = {}
    for device in sorted(devices, key=lambda device: device.index):
        groups.setdefault(device.numa_node, []).append(device)
    return list(groups.values())


def _runs(devices: Sequence[GpuDevice], tp: int) -> list[Block]:
    return [tuple(devices[start : start + tp]) for start in range(0, len(devices) - tp + 1, tp)]


@dataclass(frozen=True)
class Occupancy:
    """Who is on which devices.

    `busy`: indices in use by a job, or by another run.
    `idle_servers`: session -> (device indices, time of last use) of servers that may be stopped.
    """

    busy: frozenset[int] = frozenset()
    idle_servers: Mapping[str, tuple[frozenset[int], float]] | None = None

    def evicted_by(self, block: Block) -> list[str]:
        """Name the idle servers that must stop before a session can have this block."""
        wanted = {device.index for device in block}
        servers = self.idle_servers or {}
        return sorted(session for session, (devices, _) in servers.items() if devices & wanted)


@dataclass(frozen=True)
class BlockChoice:
    """A block, the idle servers to be stopped first, and whether it is one of the aligned ones."""

    devices: Block
    evict: tuple[str, ...]
    aligned: bool


def choose_block(
    devices: Sequence[GpuDevice],
    tp: int,
    occupancy: Occupancy,
    previous: Collection[int] = (),
    allow_unaligned: bool = False,
) -> BlockChoice | None:
    """Choose a block of tp devices none of which is busy; None when there is none now.

    In this order: the fewest servers to stop; the block that the session had before; servers unused for longest;
    the smallest free neighbourhood, so that large aligned blocks stay whole; the fullest NUMA node; the lowest index.
    Raises LeaseError when the node has fewer than tp devices.
    """
    if tp > len(devices):
        raise LeaseError(f"tensor parallelism {tp} needs {tp} GPUs, but {len(devices)} can be used here")
    aligned = [block for block in aligned_blocks(devices, tp) if _is_available(block, occupancy)]
    blocks = aligned
    if not blocks and allow_unaligned:
        blocks = [block for block in all_blocks(devices, tp) if _is_available(block, occupancy)]
    if not blocks:
        return None
    best = min(blocks, key=lambda block: _preference(block, devices, occupancy, previous))
    return BlockChoice(best, tuple(occupancy.evicted_by(best)), aligned=bool(aligned))


def _is_available(block: Block, occupancy: Occupancy) -> bool:
    return not any(device.index in occupancy.busy for device in block)


def _preference(
    block: Block, devices: Sequence[GpuDevice], occupancy: Occupancy, previous: Collection[int]
) -> tuple[int, bool, float, int, int, int]:
    evicted = occupancy.evicted_by(block)
    servers = occupancy.idle_servers or {}
    return (
        len(evicted),
        {device.index for device in block} != set(previous),
        max((servers[session][1] for session in evicted), default=0.0),
        _free_neighbourhood(block, devices, occupancy),
        _free_in_numa_node(block, devices, occupancy),
        block[0].index,
    )


def _free_neighbourhood(block: Block, devices: Sequence[GpuDevice], occupancy: Occupancy) -> int:
    """Size of the largest unoccupied aligned block around this one: what taking it would break up."""
    size = width = len(block)
    while (width := 2 * width) <= len(devices):
        around = next((wide for wide in aligned_blocks(devices, width) if set(block) <= set(wide)), None)
        if around is None or _count_free(around, occupancy) < width:
            break
        size = width
    return size


def _free_in_numa_node(block: Block, devices: Sequence[GpuDevice], occupancy: Occupancy) -> int:
    return _count_free([device for device in devices if device.numa_node == block[0].numa_node], occupancy)


def _count_free(devices: Sequence[GpuDevice], occupancy: Occupancy) -> int:
    idle = {index for held, _ in (occupancy.idle_servers or {}).values() for index in held}
    return sum(device.index not in occupancy.busy and device.index not in idle for device in devices)
