"""Rule measure: measure one cell of a session."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from draftbench.errors import exit_on_error
from draftbench.load.jobs import measure
from draftbench.load.run_file import load_run_file


def main() -> None:
    """Measure the cell named on the command line; the run file is named by DRAFTBENCH_RUN."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", required=True, help="key of the session")
    parser.add_argument("--cell", required=True, help="key of the cell within the session")
    parser.add_argument("--output", required=True, type=Path, help="cell.json to write")
    options = parser.parse_args()
    measure(load_run_file(), options.session, options.cell, options.output)


if __name__ == "__main__":
    exit_on_error(main)
