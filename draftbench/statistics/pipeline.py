"""What the rules aggregate, losslessness and statistics do: read, compute, write."""

from draftbench.layout import Layout
from draftbench.losslessness import losslessness
from draftbench.statistics.acceptance import acceptance
from draftbench.statistics.aggregate import aggregate
from draftbench.statistics.budgets import budgets
from draftbench.statistics.crosscheck import crosscheck
from draftbench.statistics.decomposition import decomposition
from draftbench.statistics.hypotheses import hypotheses
from draftbench.statistics.levels import levels
from draftbench.statistics.speedups import speedups
from draftbench.statistics.study_plan import read_plan
from draftbench.statistics.table_writing import read_table, write_tables


def aggregate_results(layout: Layout, interim: bool = False) -> None:
    """Writes tables requests, cells, failures and deviations from the cells' folders."""
    write_tables(aggregate(read_plan(layout.plan_json), layout, interim), layout)


def judge_losslessness(layout: Layout) -> None:
    """Writes table losslessness from the cells' folders and table cells."""
    table = losslessness(read_plan(layout.plan_json), layout, read_table("cells", layout))
    write_tables({"losslessness": table}, layout)


def judge_statistics(layout: Layout) -> None:
    """Writes every other table from tables requests, cells and losslessness."""
    plan = read_plan(layout.plan_json)
    requests, cells = read_table("requests", layout), read_table("cells", layout)
    tables = {
        "speedups": speedups(plan, requests, cells),
        "decomposition": decomposition(plan, requests, cells),
        "levels": levels(plan, requests, cells),
        "acceptance": acceptance(plan, requests),
        "budgets": budgets(plan, requests, cells),
        "crosscheck": crosscheck(plan, requests, cells),
    }
    judged = {**tables, "losslessness": read_table("losslessness", layout)}
    write_tables({**tables, "hypotheses": hypotheses(plan, judged)}, layout)
