"""Rule losslessness: table losslessness from the cells' outputs and tables cells and requests."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.errors import exit_on_error
from draftbench.layout import Layout
from draftbench.statistics.pipeline import judge_losslessness


def main() -> None:
    """Read the results folder that holds the plan and write the tables beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="results/<experiment>/plan/plan.json")
    options = parser.parse_args()
    layout = Layout(options.plan.parent.parent)
    judge_losslessness(layout)


if __name__ == "__main__":
    exit_on_error(main)
