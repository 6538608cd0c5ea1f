"""The node: detected from /proc and nvidia-smi, or declared in the config for planning elsewhere."""

import csv
import functools
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from draftbench.config import HardwareConfig
from draftbench.errors import PlanError
from draftbench.servers.gpu_blocks import GpuDevice, numa_groups, visible_devices

MIB = 2**20
GIB = 2**30

_REPORTED_FEATURES = ("amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512f", "avx2", "neon", "asimd", "bf16")
"""CPU flags that decide how fast the embedded engine is; the rest of the flag list says nothing here."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""nvidia-smi underlines its table head even when it writes to a file."""

_NVIDIA_SMI_SECONDS = 60.0
_MEMORY_STEP = 64 * MIB


@dataclass(frozen=True)
class Gpu:
    """One GPU; `memory_bytes` is what nvidia-smi calls memory.total."""

    index: int
    uuid: str | None
    name: str
    memory_bytes: int | None
    numa_node: int | None

    @property
    def device(self) -> GpuDevice:
        """The GPU as leases know it."""
        return GpuDevice(index=self.index, uuid=self.uuid, numa_node=self.numa_node)


@dataclass(frozen=True)
class Inventory:
    """What there is to run on.

    A declared inventory has no CPU: its fields are None, because the node was not looked at.
    `memory_bandwidth_gb_s` is declared only, since no tool reports it.
    """

    origin: Literal["detected", "declared"]
    source: str
    cpu_model: str | None
    cpu_cores: int | None
    cpu_features: tuple[str, ...]
    memory_bytes: int | None
    gpus: tuple[Gpu, ...]
    driver: str | None = None
    cuda: str | None = None
    memory_bandwidth_gb_s: float | None = None
    links: tuple[tuple[int, int, str], ...] = ()

    def __post_init__(self) -> None:
        assert len({gpu.index for gpu in self.gpus}) == len(self.gpus)

    @property
    def has_bfloat16_units(self) -> bool:
        """Whether the CPU multiplies bfloat16 natively."""
        return bool({"amx_bf16", "avx512_bf16"} & set(self.cpu_features))

    @property
    def gpu_memory_bytes(self) -> int | None:
        """Memory of the smallest GPU, which is the one that a plan must fit; None where one is unknown."""
        sizes = [gpu.memory_bytes for gpu in self.gpus]
        known = [size for size in sizes if size is not None]
        return min(known) if known and len(known) == len(sizes) else None

    @property
    def numa_nodes(self) -> tuple[tuple[int, ...], ...]:
        """GPU indices by NUMA node."""
        groups = numa_groups([gpu.device for gpu in self.gpus])
        return tuple(tuple(device.index for device in group) for group in groups)


@dataclass(frozen=True)
class Topology:
    """`nvidia-smi topo -m`: NUMA node by GPU, and the link between each pair (NV18, PIX, PHB, NODE, SYS)."""

    numa_node: Mapping[int, int]
    links: Mapping[tuple[int, int], str]


def parse_cpuinfo(text: str) -> tuple[str | None, int, tuple[str, ...]]:
    """Return model name, logical cores and the reported features of /proc/cpuinfo (x86 and ARM)."""
    lines = [line.partition(":") for line in text.splitlines()]
    fields = [(key.strip(), value.strip()) for key, colon, value in lines if colon]
    model = next((value for key, value in fields if key in ("model name", "Model", "CPU part")), None)
    flags = next((value.split() for key, value in fields if key in ("flags", "Features")), [])
    cores = sum(key == "processor" for key, _ in fields) or os.cpu_count() or 1
    return model, cores, tuple(flag for flag in _REPORTED_FEATURES if flag in flags)


def parse_meminfo(text: str) -> int | None:
    """Bytes of memory from /proc/meminfo."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def parse_gpu_query(text: str) -> tuple[tuple[Gpu, ...], str | None]:
    """GPUs and driver version from `nvidia-smi --query-gpu=... --format=csv`; columns are found by name."""
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    gpus = tuple(
        Gpu(
            index=int(row["index"]),
            uuid=row.get("uuid"),
            name=row["name"],
            memory_bytes=_mebibytes(row.get("memory.total [MiB]", "")),
            numa_node=None,
        )
        for row in rows
    )
    return gpus, (rows[0].get("driver_version") if rows else None)


def _mebibytes(text: str) -> int | None:
    match = re.match(r"(\d+) MiB", text)
    return int(match.group(1)) * MIB if match else None


def parse_cuda_version(text: str) -> str | None:
    """CUDA version of the driver from `nvidia-smi` or `nvidia-smi --version`."""
    match = re.search(r"CUDA Version\s*:\s*(\d+\.\d+)", text)
    return match.group(1) if match else None


def parse_topology(text: str) -> Topology:
    """Links and NUMA nodes from `nvidia-smi topo -m`; a GPU that touches several nodes has none."""
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    head = next((line for line in lines if "GPU0" in line and "Affinity" in line), None)
    if head is None:
        return Topology({}, {})
    columns = [cell.strip() for cell in head.split("\t")]
    numa: dict[int, int] = {}
    links: dict[tuple[int, int], str] = {}
    for line in lines[lines.index(head) + 1 :]:
        cells = dict(zip(columns, (cell.strip() for cell in line.split("\t")), strict=False))
        row = re.fullmatch(r"GPU(\d+)", cells.get("", ""))
        if row is None:
            continue
        if cells.get("NUMA Affinity", "").isdigit():
            numa[int(row.group(1))] = int(cells["NUMA Affinity"])
        for column, link in cells.items():
            other = re.fullmatch(r"GPU(\d+)", column)
            if other is not None and link != "X":
                links[int(row.group(1)), int(other.group(1))] = link
    return Topology(numa, links)


def declared_inventory(hardware: HardwareConfig) -> Inventory:
    """Build the inventory that a config declares."""
    nodes = {gpu: number for number, node in enumerate(hardware.numa_nodes) for gpu in node}
    memory = None if hardware.gpu_memory_gib is None else round(hardware.gpu_memory_gib * GIB)
    gpus = tuple(
        Gpu(index=index, uuid=None, name=hardware.gpu_name, memory_bytes=memory, numa_node=nodes.get(index, 0))
        for index in range(hardware.gpus)
    )
    return Inventory(
        origin="declared",
        source=hardware.source,
        cpu_model=None,
        cpu_cores=None,
        cpu_features=(),
        memory_bytes=None,
        gpus=gpus,
        memory_bandwidth_gb_s=hardware.memory_bandwidth_gb_s,
    )


@functools.cache
def detect_inventory(cuda_visible_devices: str | None = None) -> Inventory:
    """Look at this machine; without nvidia-smi it has no GPUs.

    Cached, because nvidia-smi can take a second and nothing here changes while a run is planned.
    """
    model, cores, features = parse_cpuinfo(_read(Path("/proc/cpuinfo")))
    gpus, driver = parse_gpu_query(_nvidia_smi("--query-gpu=index,uuid,name,memory.total,driver_version"))
    topology = parse_topology(_nvidia_smi("topo", "-m")) if gpus else Topology({}, {})
    placed = tuple(replace(gpu, numa_node=topology.numa_node.get(gpu.index)) for gpu in gpus)
    kept = _visible(placed, cuda_visible_devices)
    indices = {gpu.index for gpu in kept}
    return Inventory(
        origin="detected",
        source="/proc and nvidia-smi" if gpus else "/proc; nvidia-smi lists no GPU",
        cpu_model=model,
        cpu_cores=cores,
        cpu_features=features,
        memory_bytes=_memory_limit(parse_meminfo(_read(Path("/proc/meminfo")))),
        gpus=kept,
        driver=driver,
        cuda=parse_cuda_version(_nvidia_smi("--version")) if gpus else None,
        links=tuple((*pair, link) for pair, link in sorted(topology.links.items()) if set(pair) <= indices),
    )


def _visible(gpus: tuple[Gpu, ...], cuda_visible_devices: str | None) -> tuple[Gpu, ...]:
    if not gpus:
        return ()
    by_index = {gpu.index: gpu for gpu in gpus}
    chosen = visible_devices([gpu.device for gpu in gpus], cuda_visible_devices)
    return tuple(by_index[device.index] for device in chosen)


def read_inventory(hardware: HardwareConfig | None, environment: Mapping[str, str] = os.environ) -> Inventory:
    """Look at this machine, less what CUDA_VISIBLE_DEVICES hides; elsewhere take the node that the config declares.

    On a machine that is the declared node the detected GPUs count, so that UUIDs and driver are known.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if hardware is None:
        return detect_inventory(visible)
    declared = declared_inventory(hardware)
    detected = detect_inventory(visible)
    if not declared.gpus or declaration_problem(declared, detected) is not None:
        return declared
    return replace(
        detected,
        source=f"{detected.source}; as declared in the config",
        gpus=detected.gpus[: len(declared.gpus)],
        memory_bandwidth_gb_s=declared.memory_bandwidth_gb_s,
    )


def runs_on(inventory: Inventory, device: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    """Resolve an engine's `device`: auto takes the GPUs where there are any.

    Raises PlanError for cuda on a node without GPUs.
    """
    if device == "cuda" and not inventory.gpus:
        raise PlanError("engines.*.device is cuda, but the node has no GPU; set auto or cpu, or declare `hardware`")
    if device == "auto":
        return "cuda" if inventory.gpus else "cpu"
    return device


def device_identity(inventory: Inventory, device: Literal["cpu", "cuda"]) -> dict[str, Any]:
    """What the session hash covers: a number measured on another device is another number.

    The count of GPUs is left out, so that a session keeps its key when fewer are visible.
    """
    if device == "cuda":
        return {"gpus": sorted({gpu.name for gpu in inventory.gpus}), "driver": inventory.driver}
    return {"cpu": inventory.cpu_model, "cores": inventory.cpu_cores}


def declaration_problem(declared: Inventory, detected: Inventory) -> str | None:
    """Say why the machine is not the node that was declared; None where it is. Asked before a launch on a GPU."""
    if len(detected.gpus) < len(declared.gpus):
        return f"hardware.gpus declares {len(declared.gpus)} GPUs, but this machine shows {len(detected.gpus)}"
    names = {gpu.name for gpu in detected.gpus} - {gpu.name for gpu in declared.gpus}
    if names:
        return f"hardware.gpu_name declares {declared.gpus[0].name!r}, but this machine has {min(names)!r}"
    wanted, there = declared.gpu_memory_bytes, detected.gpu_memory_bytes
    if wanted is not None and there is not None and there < 0.98 * wanted:
        return f"hardware.gpu_memory_gib declares {wanted / GIB:.1f} GiB, but a GPU here has {there / GIB:.1f} GiB"
    return None


def _nvidia_smi(*arguments: str) -> str:
    arguments = (*arguments, "--format=csv") if arguments[0].startswith("--query") else arguments
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _memory_limit(total: int | None) -> int | None:
    """Memory that this process may use; rounded down, since MemTotal moves a little from boot to boot."""
    limit = _read(Path("/sys/fs/cgroup/memory.max")).strip()
    if total is None:
        return None
    usable = min(total, int(limit)) if limit.isdigit() else total
    return usable - usable % _MEMORY_STEP


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
