"""The inventory: parsers on recorded output, declared nodes, CUDA_VISIBLE_DEVICES, identity."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftbench.config import HardwareConfig
from draftbench.errors import LeaseError, PlanError
from draftbench.hardware import (
    GIB,
    MIB,
    declaration_problem,
    declared_inventory,
    detect_inventory,
    device_identity,
    parse_cpuinfo,
    parse_cuda_version,
    parse_gpu_query,
    parse_meminfo,
    parse_topology,
    read_inventory,
    runs_on,
)

DATA = Path(__file__).resolve().parents[1] / "data" / "nvidia-smi"

CPUINFO = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor\t: 1
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile
"""


@pytest.fixture
def eight_gpu_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put an nvidia-smi on the PATH that prints the eight-GPU files."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"--query-gpu=*) cat {DATA}/eight-gpus-query.csv;;\n"
        f"topo) cat {DATA}/eight-gpus-topo.txt;;\n"
        f"--version) cat {DATA}/h200-header.txt;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    detect_inventory.cache_clear()
    yield
    detect_inventory.cache_clear()


def test_cpuinfo_gives_model_cores_and_decisive_features() -> None:
    """Two processors and the features that matter, in a fixed order; fpu is left out."""
    model, cores, features = parse_cpuinfo(CPUINFO)
    assert (model, cores) == ("Intel(R) Xeon(R) Processor", 2)
    assert features == ("amx_tile", "amx_bf16", "avx512_bf16", "avx512f", "avx2")


def test_meminfo_is_read_in_kibibytes() -> None:
    """24684084 kB of /proc/meminfo are 24684084 x 1024 bytes; a text without MemTotal gives None."""
    assert parse_meminfo("MemTotal:       24684084 kB\nMemFree: 1 kB\n") == 25_276_502_016
    assert parse_meminfo("nothing") is None


def test_recorded_query_of_one_h200() -> None:
    """The recorded CSV has more columns than asked for; they are found by name."""
    gpus, driver = parse_gpu_query((DATA / "h200-query.csv").read_text())
    assert driver == "580.159.04"
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in gpus] == [(0, "NVIDIA H200", 143_771 * MIB)]
    assert gpus[0].uuid == "GPU-00000000-0000-0000-0000-000000000001"


def test_no_output_means_no_gpus() -> None:
    """An absent or failing nvidia-smi prints nothing, and that is a node without GPUs."""
    assert parse_gpu_query("") == ((), None)
    assert parse_topology("").numa_node == {}


def test_recorded_topology_of_one_h200() -> None:
    """The recorded table has an underlined head and an empty column between NUMA node and GPU NUMA ID."""
    topology = parse_topology((DATA / "h200-topo.txt").read_text())
    assert topology.numa_node == {0: 0}
    assert topology.links == {}


def test_topology_of_eight_gpus_with_a_network_card() -> None:
    """GPUs 0 to 3 are on node 0, 4 to 7 on node 1; the network card's row and column are no GPU."""
    topology = parse_topology((DATA / "eight-gpus-topo.txt").read_text())
    assert topology.numa_node == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}
    assert len(topology.links) == 56
    assert topology.links[0, 3] == "NODE"
    assert topology.links[0, 4] == "SYS"


def test_cuda_version_from_the_recorded_header() -> None:
    """Both `nvidia-smi` and `nvidia-smi --version` name it."""
    assert parse_cuda_version((DATA / "h200-header.txt").read_text()) == "13.0"
    assert parse_cuda_version("CUDA Version        : 12.4\n") == "12.4"
    assert parse_cuda_version("") is None


@pytest.mark.usefixtures("eight_gpu_node")
def test_detection_joins_query_topology_and_version() -> None:
    """A node whose nvidia-smi lists eight GPUs is detected with NUMA nodes and driver."""
    inventory = read_inventory(None, {})
    assert inventory.origin == "detected"
    assert inventory.numa_nodes == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (inventory.driver, inventory.cuda) == ("580.95.05", "13.0")
    assert inventory.gpu_memory_bytes == 97_887 * MIB


@pytest.mark.usefixtures("eight_gpu_node")
@pytest.mark.parametrize(
    ("visible", "expected"),
    [("4,5", [4, 5]), ("GPU-00000003", [3]), ("", []), ("-1", []), ("1,99,2", [1])],
)
def test_cuda_visible_devices_is_respected(visible: str, expected: list[int]) -> None:
    """Indices and UUID prefixes are taken, and as in CUDA the list ends at the first unknown entry."""
    inventory = read_inventory(None, {"CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.index for gpu in inventory.gpus] == expected
    assert all(first in expected and second in expected for first, second, _ in inventory.links)


@pytest.mark.usefixtures("eight_gpu_node")
def test_cuda_visible_devices_that_names_no_gpu_is_an_error() -> None:
    """A list of unknown GPUs is a mistake, not a node without GPUs."""
    with pytest.raises(LeaseError, match="CUDA_VISIBLE_DEVICES='42' names no GPU"):
        read_inventory(None, {"CUDA_VISIBLE_DEVICES": "42"})


@pytest.mark.usefixtures("eight_gpu_node")
def test_on_the_declared_node_the_detected_gpus_count() -> None:
    """Same model, number and memory: UUIDs and driver come from the machine, the bandwidth from the declaration."""
    hardware = declared(
        gpu_name="NVIDIA RTX PRO 6000 Blackwell Server Edition", gpu_memory_gib=95.6, memory_bandwidth_gb_s=1792
    )
    here = read_inventory(hardware, {})
    assert (here.origin, here.driver, here.memory_bandwidth_gb_s) == ("detected", "580.95.05", 1792)
    assert here.gpus[7].uuid == "GPU-00000007-0000-0000-0000-000000000000"
    assert read_inventory(hardware, {"CUDA_VISIBLE_DEVICES": "0,1"}).origin == "declared"
    assert read_inventory(declared(), {}).origin == "declared"


def test_this_machine_is_detected() -> None:
    """Without a stub the real machine answers: at least one core and some memory."""
    detect_inventory.cache_clear()
    inventory = read_inventory(None, {})
    assert inventory.cpu_cores is not None
    assert inventory.cpu_cores >= 1
    assert inventory.memory_bytes is not None
    assert inventory.memory_bytes % (64 * MIB) == 0


def declared(**changes: object) -> HardwareConfig:
    """Eight GPUs of 96 GiB on two nodes."""
    content = {
        "gpus": 8,
        "gpu_name": "NVIDIA Test GPU",
        "gpu_memory_gib": 96.0,
        "numa_nodes": ((0, 1, 2, 3), (4, 5, 6, 7)),
    }
    return HardwareConfig.model_validate(content | changes)


def test_declared_node_has_gpus_but_no_cpu() -> None:
    """What is not declared is None; nothing of this machine leaks into a declared node."""
    inventory = declared_inventory(declared())
    assert inventory.origin == "declared"
    assert inventory.cpu_model is None
    assert inventory.memory_bytes is None
    assert inventory.gpu_memory_bytes == 96 * GIB
    assert inventory.numa_nodes == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_unknown_gpu_memory_stays_unknown() -> None:
    """A declared node without gpu_memory_gib has no memory figure."""
    assert declared_inventory(declared(gpu_memory_gib=None)).gpu_memory_bytes is None


def test_auto_takes_gpus_where_there_are_any() -> None:
    """Device auto is cuda on a GPU node and cpu elsewhere; cuda without a GPU is one line of error."""
    assert runs_on(declared_inventory(declared()), "auto") == "cuda"
    assert runs_on(declared_inventory(declared(gpus=0, numa_nodes=())), "auto") == "cpu"
    with pytest.raises(PlanError, match="the node has no GPU"):
        runs_on(declared_inventory(declared(gpus=0, numa_nodes=())), "cuda")


def test_identity_ignores_how_many_gpus_are_visible() -> None:
    """A session keeps its key when fewer GPUs are visible, and loses it on another GPU model."""
    eight, four = declared_inventory(declared()), declared_inventory(declared(gpus=4, numa_nodes=()))
    other = declared_inventory(declared(gpu_name="NVIDIA Other GPU"))
    assert device_identity(eight, "cuda") == device_identity(four, "cuda")
    assert device_identity(eight, "cuda") != device_identity(other, "cuda")
    assert set(device_identity(eight, "cpu")) == {"cpu", "cores"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"gpus": 4, "numa_nodes": ()}, "declares 8 GPUs, but this machine shows 4"),
        ({"gpu_name": "NVIDIA Other"}, "this machine has 'NVIDIA Other'"),
        ({"gpu_memory_gib": 80.0}, "declares 96.0 GiB, but a GPU here has 80.0 GiB"),
    ],
)
def test_declared_node_is_held_against_the_machine(changes: dict[str, object], expected: str | None) -> None:
    """Fewer GPUs, another model or less memory than declared is named; the same node passes."""
    problem = declaration_problem(declared_inventory(declared()), declared_inventory(declared(**changes)))
    assert problem is None if expected is None else expected in (problem or "")
