"""Rule report: report.html, report.tex and, where TeX is installed, report.pdf, from the tables alone."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.errors import exit_on_error
from draftbench.layout import Layout
from draftbench.report import write_report


def main() -> None:
    """Write the reports beside the plan's results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="results/<experiment>/plan/plan.json")
    parser.add_argument("--interim", action="store_true", help="mark the report as made from an unfinished run")
    options = parser.parse_args()
    for line in write_report(Layout(options.plan.parent.parent), interim=options.interim):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    exit_on_error(main)
