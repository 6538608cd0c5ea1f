"""Rule interim: a folder beside the results in which the report of an unfinished study is made."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.errors import PlanError, exit_on_error
from draftbench.layout import Layout
from draftbench.plan.writing import load_plan, write_plan

SHARED = ("sessions", "failures", "workloads")


def main() -> None:
    """Write the current plan into results/<experiment>/interim/ and link what was measured so far."""
    computed = os.environ.get("DRAFTBENCH_PLAN")
    if not computed:
        raise PlanError("DRAFTBENCH_PLAN is not set; run `snakemake interim`")
    plan = load_plan(Path(computed))
    layout = Layout(Layout.of(plan.experiment).root / "interim")
    write_plan(plan, layout)
    for name in SHARED:
        (layout.root.parent / name).mkdir(parents=True, exist_ok=True)
        link = layout.root / name
        if not link.is_symlink():
            link.symlink_to(Path("..") / name, target_is_directory=True)


if __name__ == "__main__":
    exit_on_error(main)
