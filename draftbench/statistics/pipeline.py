"""What the rules aggregate, losslessness and statistics do: read, compute, write."""

from draftbench.layout import Layout
from draftbench.losslessness import losslessness
from draftbench.provenance import atomic_write_text
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
    """Writes tables requests, cells, failures and deviations from the cells' folders, and the index of all cells."""
    tables = aggregate(read_plan(layout.plan_json), layout, interim)
    write_tables(tables, layout)
    atomic_write_text(layout.index, tables["cells"].write_csv())


def judge_losslessness(layout: Layout) -> None:
    """Writes table losslessness from tables cells and requests and the cells' folders."""
    cells, requests = read_table("cells", layout), read_table("requests", layout)
    table = losslessness(read_plan(layout.plan_json), layout, cells, requests)
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
