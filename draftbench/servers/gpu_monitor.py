"""Memory and processes of the leased GPUs, as NVML sees them."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from draftbench.servers.gpu_blocks import GpuDevice

BASELINE_TOLERANCE_MIB = 256


class GpuMonitor:
    """NVML handles of some GPUs, found by UUID where known."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = handles

    @classmethod
    def open(cls, devices: Sequence[GpuDevice]) -> Self | None:
        """Open NVML; None where there is no driver, or a device is only declared."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            handles = [_handle(pynvml, device) for device in devices]
        except pynvml.NVMLError:
            return None
        return cls(pynvml, handles)

    def used_mib(self) -> list[int]:
        """Memory in use on each GPU, MiB."""
        return [self._nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20 for handle in self._handles]

    def compute_processes(self) -> list[int]:
        """Pids of the processes that compute on any of the GPUs; a container may not see all."""
        found = {
            process.pid
            for handle in self._handles
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        return sorted(found)


def _handle(nvml: Any, device: GpuDevice) -> Any:
    if device.uuid is not None:
        return nvml.nvmlDeviceGetHandleByUUID(device.uuid)
    return nvml.nvmlDeviceGetHandleByIndex(device.index)


def wait_for_baseline(
    read_used_mib: Callable[[], Sequence[int]],
    baseline_mib: Sequence[int],
    timeout_s: float,
    interval_s: float = 0.2,
) -> bool:
    """Wait until each GPU uses no more than before the server started; False at the timeout."""
    end = time.monotonic() + timeout_s
    while True:
        used = read_used_mib()
        if all(now <= before + BASELINE_TOLERANCE_MIB for now, before in zip(used, baseline_mib, strict=True)):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(interval_s)
