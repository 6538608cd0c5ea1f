"""Rule stale: list session and workload folders that no current plan wants; nothing is deleted."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from draftbench.errors import exit_on_error
from draftbench.load.run_file import RunFile, load_run_file


def stale_folders(run: RunFile) -> list[Path]:
    """Folders of sessions, cells and workloads outside the plan, in alphabetical order."""
    wanted = {run.layout.session(key) for key in run.sessions}
    wanted |= {run.layout.cell(key, cell) for key, session in run.sessions.items() for cell in session.cells}
    for files in run.workloads.values():
        wanted |= {files.rendered.parent} | ({files.calibration.parent} if files.calibration else set())
    there = {path.parent for path in run.layout.root.glob("sessions/*/*/cell.json")}
    there |= {path.parent for path in run.layout.root.glob("sessions/*/launch.json")}
    there |= {path.parent for path in run.layout.root.glob("workloads/*/manifest.json")}
    return sorted(there - wanted)


def main() -> None:
    """Print one folder a line, with the size of each."""
    folders = stale_folders(load_run_file())
    for folder in folders:
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{folder}{os.sep}  {size / 1e6:.1f} MB", file=sys.stderr)
    print(f"{len(folders)} stale folders; delete what you no longer need", file=sys.stderr)


if __name__ == "__main__":
    exit_on_error(main)
