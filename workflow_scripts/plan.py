"""Rule plan: write plan.json, bench-plan.md and the ledger of blocks."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.errors import PlanError, exit_on_error
from draftbench.layout import Layout
from draftbench.plan.writing import load_plan, write_plan


def main() -> None:
    """Write the plan that the workflow computed when it was read; DRAFTBENCH_PLAN names it."""
    computed = os.environ.get("DRAFTBENCH_PLAN")
    if not computed:
        raise PlanError("DRAFTBENCH_PLAN is not set; run this script through snakemake")
    plan = load_plan(Path(computed))
    layout = Layout.of(plan.experiment)
    write_plan(plan, layout)
    print(f"plan: {plan.cells} cells in {len(plan.sessions)} sessions, see {layout.plan_markdown}")


if __name__ == "__main__":
    exit_on_error(main)
