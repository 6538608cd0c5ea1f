"""Where every result lies: paths as pure functions; a path is only a key, no value is parsed out of it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The results folder of one experiment."""

    root: Path

    @classmethod
    def of(cls, experiment: str) -> "Layout":
        """results/<experiment>/, relative to the working folder."""
        return cls(Path("results") / experiment)

    @property
    def plan_json(self) -> Path:
        """The plan as data."""
        return self.root / "plan" / "plan.json"

    @property
    def plan_markdown(self) -> Path:
        """The plan to read and approve."""
        return self.root / "plan" / "bench-plan.md"

    @property
    def ledger(self) -> Path:
        """Which arms each block has held, so that a later arm comes in a new block."""
        return self.root / "plan" / "blocks.json"

    def workload(self, key: str) -> Path:
        """Folder of one built workload."""
        return self.root / "workloads" / key

    def session(self, key: str) -> Path:
        """Folder of one session."""
        return self.root / "sessions" / key

    def launch_record(self, session: str) -> Path:
        """Provenance of a session's first launch."""
        return self.session(session) / "launch.json"

    def warmup_record(self, session: str) -> Path:
        """What the first warm-up of a session did."""
        return self.session(session) / "warmup.json"

    def cell(self, session: str, cell: str) -> Path:
        """Folder of one measured cell: cell.json, requests.parquet, chunks.parquet, for AR scores.parquet."""
        return self.session(session) / cell

    def cell_record(self, session: str, cell: str) -> Path:
        """Written last, so that its existence means the cell is complete."""
        return self.cell(session, cell) / "cell.json"

    def failure(self, session: str, cell: str) -> Path:
        """Record of a launch, warm-up (cell = that word) or cell that ended without valid evidence."""
        return self.root / "failures" / f"{session}__{cell}.json"

    def table(self, name: str) -> Path:
        """One tidy table; a CSV lies beside each Parquet file."""
        return self.root / "tables" / f"{name}.parquet"

    @property
    def figures(self) -> Path:
        """Folder of figure files."""
        return self.root / "figures"

    @property
    def report_html(self) -> Path:
        """The self-contained report."""
        return self.root / "report.html"

    @property
    def report_tex(self) -> Path:
        """LaTeX source of the report."""
        return self.root / "report.tex"

    @property
    def report_pdf(self) -> Path:
        """The printed report; absent, with the reason in report.tex.log, where no TeX is installed."""
        return self.root / "report.pdf"

    @property
    def index(self) -> Path:
        """All cells with their parameters and folders."""
        return self.root / "index.csv"
