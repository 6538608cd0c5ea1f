"""Rule plan: plan.json, bench-plan.md and the ledger, each written whole."""

from pathlib import Path

from draftbench.errors import PlanError, WorkloadError
from draftbench.layout import Layout
from draftbench.plan.content import Plan
from draftbench.plan.ledger import ledger_text, merged, read_ledger
from draftbench.plan.markdown import render_markdown
from draftbench.plan.progress import progress_of, read_measured
from draftbench.provenance import atomic_write_text
from draftbench.workloads.schema import MANIFEST_FILE, Manifest, load_manifest


def write_plan(plan: Plan, layout: Layout, project: Path = Path()) -> None:
    """Write ledger, document and data; plan.json comes last and vouches for the others.

    The ledger is read before plan.json is replaced, since that file tells which blocks were launched.
    """
    ledger = merged(read_ledger(project, layout), plan.blocks)
    atomic_write_text(project / layout.ledger, ledger_text(ledger))
    progress = progress_of(plan, read_measured(plan, layout, project))
    document = render_markdown(plan, _manifests(plan, layout, project), progress)
    atomic_write_text(project / layout.plan_markdown, document)
    atomic_write_text(project / layout.plan_json, plan.model_dump_json(indent=1) + "\n")


def load_plan(path: Path) -> Plan:
    """Read a plan.json; raises PlanError where it is missing or of another version."""
    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; run `snakemake plan`") from None
    except ValueError as error:
        problem = str(error).splitlines()[0]
        raise PlanError(f"{path}: is no plan of this version ({problem}); run `snakemake plan`") from None


def _manifests(plan: Plan, layout: Layout, project: Path) -> dict[str, Manifest]:
    found = {}
    for workload in plan.workloads:
        path = project / layout.workload(workload.key) / MANIFEST_FILE
        try:
            found[workload.key] = load_manifest(path)
        except WorkloadError:
            continue
    return found
