"""Choice of GPU blocks, by tables."""

import itertools

import pytest

from draftbench.errors import LeaseError
from draftbench.servers.gpu_blocks import (
    GpuDevice,
    Occupancy,
    aligned_blocks,
    choose_block,
    pseudo_devices,
    visible_devices,
)
from tests.unit.servers.local_node import TWO_NODES

ONE_NODE = tuple(GpuDevice(index=index, numa_node=0) for index in range(8))
UNKNOWN = pseudo_devices(8)
INTERLEAVED = tuple(GpuDevice(index=index, numa_node=index % 2) for index in range(8))


def indices(block: tuple[GpuDevice, ...]) -> list[int]:
    """Indices of a block."""
    return [device.index for device in block]


@pytest.mark.parametrize(
    ("devices", "tp", "expected"),
    [
        (TWO_NODES, 1, [[0], [1], [2], [3], [4], [5], [6], [7]]),
        (TWO_NODES, 2, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (TWO_NODES, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (TWO_NODES, 8, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (TWO_NODES, 3, [[0, 1, 2], [4, 5, 6]]),
        (TWO_NODES, 6, [[0, 1, 2, 3, 4, 5]]),
        (ONE_NODE, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (UNKNOWN, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (INTERLEAVED, 2, [[0, 2], [4, 6], [1, 3], [5, 7]]),
        (INTERLEAVED, 4, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (INTERLEAVED, 8, [[0, 2, 4, 6, 1, 3, 5, 7]]),
        (TWO_NODES[:6], 4, [[0, 1, 2, 3]]),
        (TWO_NODES[2:6], 4, [[2, 3, 4, 5]]),
        (TWO_NODES[:2], 4, []),
    ],
)
def test_aligned_blocks(devices: tuple[GpuDevice, ...], tp: int, expected: list[list[int]]) -> None:
    """Runs of tp inside a NUMA node; across nodes only where no node holds tp devices."""
    assert [indices(block) for block in aligned_blocks(devices, tp)] == expected


@pytest.mark.parametrize(
    ("tp", "busy", "idle", "previous", "expected", "evicted"),
    [
        # an empty node: the first block
        (4, [], {}, [], [0, 1, 2, 3], []),
        (8, [], {}, [], [0, 1, 2, 3, 4, 5, 6, 7], []),
        # two TP4 side by side, a TP8 not beside one
        (4, [0, 1, 2, 3], {}, [], [4, 5, 6, 7], []),
        (8, [0], {}, [], None, []),
        # small sessions fill the used half, so that the other stays whole
        (2, [0, 1], {}, [], [2, 3], []),
        (2, [6, 7], {}, [], [4, 5], []),
        (1, [4, 5, 6], {}, [], [7], []),
        # inside the half, a TP1 fills the used pair
        (1, [0, 1, 2], {}, [], [3], []),
        (1, [2, 4, 5], {}, [], [3], []),
        # the block it had before, when that is free
        (2, [], {}, [4, 5], [4, 5], []),
        (4, [0, 1], {}, [0, 1, 2, 3], [4, 5, 6, 7], []),
        # idle servers are stopped only where nothing is free
        (4, [], {"old": ([0, 1, 2, 3], 1.0)}, [], [4, 5, 6, 7], []),
        (4, [4], {"old": ([0, 1, 2, 3], 1.0)}, [], [0, 1, 2, 3], ["old"]),
        # fewest first: two idle TP1 against one idle TP2
        (2, [4, 5, 6, 7], {"a": ([0], 1.0), "b": ([1], 1.0), "c": ([2, 3], 9.0)}, [], [2, 3], ["c"]),
        # then those unused for longest
        (4, [], {"a": ([0, 1, 2, 3], 9.0), "b": ([4, 5, 6, 7], 1.0)}, [], [4, 5, 6, 7], ["b"]),
        # fragmentation: idle TP2 and TP1 in both halves do not block an aligned TP4
        (4, [0, 1], {"a": ([4, 5], 1.0), "b": ([7], 2.0), "c": ([2, 3], 1.0)}, [], [4, 5, 6, 7], ["a", "b"]),
        # busy in both halves: no aligned block now
        (4, [1, 6], {}, [], None, []),
    ],
)
def test_choice_on_two_numa_nodes(
    tp: int,
    busy: list[int],
    idle: dict[str, tuple[list[int], float]],
    previous: list[int],
    expected: list[int] | None,
    evicted: list[str],
) -> None:
    """Eight GPUs, two NUMA nodes of four."""
    servers = {session: (frozenset(held), used) for session, (held, used) in idle.items()}
    choice = choose_block(TWO_NODES, tp, Occupancy(frozenset(busy), servers), previous)
    if expected is None:
        assert choice is None
    else:
        assert choice is not None
        assert indices(choice.devices) == expected
        assert list(choice.evict) == evicted
        assert choice.aligned


def test_an_unaligned_block_is_the_last_resort() -> None:
    """Busy GPUs in both halves: after the wait, a run across them is better than none, and says so."""
    occupancy = Occupancy(frozenset({0, 1, 6, 7}))
    assert choose_block(TWO_NODES, 4, occupancy) is None
    choice = choose_block(TWO_NODES, 4, occupancy, allow_unaligned=True)
    assert choice is not None
    assert indices(choice.devices) == [2, 3, 4, 5]
    assert not choice.aligned


def test_too_few_devices_is_one_line() -> None:
    """A TP that the node cannot hold is refused, not waited for."""
    with pytest.raises(LeaseError, match="needs 16 GPUs, but 8"):
        choose_block(TWO_NODES, 16, Occupancy())


@pytest.mark.parametrize("order", list(itertools.permutations([1, 1, 2, 4])))
def test_every_order_of_a_full_mix_fits(order: tuple[int, ...]) -> None:
    """TP1, TP1, TP2 and TP4 fill eight GPUs in whatever order they come, each aligned, none twice."""
    busy: set[int] = set()
    for tp in order:
        choice = choose_block(TWO_NODES, tp, Occupancy(frozenset(busy)))
        assert choice is not None
        taken = set(indices(choice.devices))
        assert len(taken) == tp
        assert not taken & busy
        busy |= taken
    assert len(busy) == 8


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("2,3", [2, 3]),
        (" 6 , 4 ", [6, 4]),
        ("GPU-0005,GPU-0001", [5, 1]),
        ("GPU-0005", [5]),
        ("1,99,2", [1]),
        ("GPU-000", None),
        ("99", None),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices(variable: str | None, expected: list[int] | None) -> None:
    """Indices and UUIDs, in the order given; the list ends at an unknown entry; nothing left is an error."""
    if expected is None:
        with pytest.raises(LeaseError, match="names no GPU"):
            visible_devices(TWO_NODES, variable)
    else:
        assert indices(visible_devices(TWO_NODES, variable)) == expected


def test_locks_are_named_by_uuid_where_known() -> None:
    """An index means another GPU under another CUDA_VISIBLE_DEVICES, a UUID does not."""
    assert GpuDevice(index=3, uuid="GPU-abc").lock_name == "gpu-GPU-abc"
    assert GpuDevice(index=3).lock_name == "gpu-3"
