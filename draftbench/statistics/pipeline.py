"""What the rules aggregate, losslessness and statistics do: read, compute, write."""

from draftbench.layout import Layout
from draftbench.statistics.aggregate import aggregate
from draftbench.statistics.study_plan import read_plan
from draftbench.statistics.table_writing import write_tables


def aggregate_results(layout: Layout, interim: bool = False) -> None:
    """Writes tables requests, cells, failures and deviations from the cells' folders."""
    write_tables(aggregate(read_plan(layout.plan_json), layout, interim), layout)


def judge_losslessness(layout: Layout) -> None:
    """Writes table losslessness from the cells' folders and table cells."""


def judge_statistics(layout: Layout) -> None:
    """Writes every other table from tables requests, cells and losslessness."""
