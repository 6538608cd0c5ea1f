"""Memory and strangers on a real GPU; skipped where there is none."""

import subprocess
import sys

import pytest

from draftbench.errors import LeaseError
from draftbench.servers.gpu_blocks import GpuDevice
from draftbench.servers.gpu_monitor import BASELINE_TOLERANCE_MIB, GpuMonitor
from draftbench.servers.leases import lease, stop_all
from draftbench.servers.server_spec import RunContext
from tests.unit.servers.local_node import SERVER, Node, SpecFactory

GPU = GpuDevice(index=0)
MONITOR = GpuMonitor.open([GPU])
needs_gpu = pytest.mark.skipif(MONITOR is None, reason="no GPU here, or no NVML")


def test_a_device_that_is_only_declared_has_no_monitor() -> None:
    """Stub servers on a declared inventory start without NVML's word."""
    assert GpuMonitor.open([GpuDevice(index=99, uuid="GPU-declared")]) is None


@needs_gpu
def test_the_lease_is_freed_when_memory_is_back(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A server of 4 GiB is seen while it lives; once stopped, the GPU is at its baseline."""
    assert MONITOR is not None
    (before,) = MONITOR.used_mib()
    with lease(make_spec("a", "--gpu-memory-mib", "4096", device="cuda", devices=(GPU,)), run):
        assert MONITOR.used_mib()[0] >= before + 4096
    stop_all(run)
    assert MONITOR.used_mib()[0] <= before + BASELINE_TOLERANCE_MIB
    assert node.is_clean()


@needs_gpu
def test_a_stranger_on_the_gpu_is_refused_and_left_alone(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """Other people's processes are named, never killed."""
    command = [
        sys.executable,
        "-u",
        str(SERVER),
        "--port",
        "20999",
        "--gpu-memory-mib",
        "1024",
        "--startup-seconds",
        "60",
    ]
    spec = make_spec("a", device="cuda", devices=(GPU,))
    with subprocess.Popen(command) as stranger:
        assert MONITOR is not None
        while not MONITOR.compute_processes():
            assert stranger.poll() is None
        with pytest.raises(LeaseError, match="other processes compute on GPU 0"), lease(spec, run):
            pass
        assert stranger.poll() is None
        stranger.terminate()
    assert node.is_clean()
