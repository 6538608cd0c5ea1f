"""Rule figures: every figure on its own, as SVG, PNG, PDF, Vega-Lite and pgfplots, from the tables alone."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.errors import exit_on_error
from draftbench.figures.catalogue import build_catalogue
from draftbench.figures.files import write_figures
from draftbench.figures.study import read_study
from draftbench.layout import Layout


def main() -> None:
    """Draw what the tables beside the plan allow and say what was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="results/<experiment>/plan/plan.json")
    parser.add_argument("--interim", action="store_true", help="accepted for the rule interim; figures are the same")
    options = parser.parse_args()
    layout = Layout(options.plan.parent.parent)
    figures, skipped = build_catalogue(read_study(layout))
    write_figures(figures, skipped, layout.figures)
    for entry in skipped:
        print(f"figure {entry.name} left out: {entry.reason}", file=sys.stderr)
    print(f"{len(figures)} figures in {layout.figures}", file=sys.stderr)


if __name__ == "__main__":
    exit_on_error(main)
