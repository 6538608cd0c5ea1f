"""What the lease modules may import: each Snakemake job starts them."""

import subprocess
import sys
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
import draftbench.servers.keeper, draftbench.servers.leases
print(" ".join(sorted({name.split(".")[0] for name in sys.modules})))
print(" ".join(name for name in sys.modules if name.startswith("draftbench.")))
"""
HEAVY = {"torch", "sglang", "polars", "numpy", "aiohttp", "yaml", "snakemake", "psutil", "pynvml", "asyncio"}


def test_a_job_that_leases_imports_little() -> None:
    """No engine, no data frames, no NVML before a GPU is leased, and of draftbench only errors beside the servers."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    packages, own = (set(line.split()) for line in done.stdout.splitlines())
    assert "pydantic" in packages
    assert packages & HEAVY == set()
    others = {name for name in own if not name.startswith("draftbench.servers")}
    assert others == {"draftbench.errors"}
