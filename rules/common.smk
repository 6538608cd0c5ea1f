"""Config, inventory and ledger -> STUDY, the one object that rules ask for paths, resources and targets.

Needs: the config file, the machine's inventory, results/<experiment>/plan/blocks.json where a run was before.
Makes: .draftbench/runs/<hash>.json, what the jobs of this run need to know (written on a dry run too, harmlessly).
"""

import os
import sys
from pathlib import Path

from draftbench.errors import DraftbenchError
from draftbench.run_state import StudyRun
from draftbench.study import Study

MEASURING = {"launch", "warmup", "measure"}
PURPOSES = {
    "plan": {"plan", "workloads", "stale"},
    "analyse": {
        "interim",
        "report",
        "figures",
        "statistics",
        "losslessness",
        "aggregate",
    },
}


def open_study():
    """One line and exit code 1 for a mistake in the config, instead of Snakemake's traceback."""
    settings = workflow.config_settings
    named = set(sys.argv[1:])  # the workflow does not know its targets yet
    purpose = next(
        (purpose for purpose, targets in PURPOSES.items() if targets & named), "measure"
    )
    files = list(settings.configfiles) or [Path(workflow.basedir) / "config.yaml"]
    granted = (
        workflow.global_resources["gpus"].value
        if "gpus" in workflow.global_resources
        else None
    )
    try:
        return Study.open(
            config_file=Path(files[-1]),
            overrides=dict(settings.config),
            project=Path(workflow.basedir),
            gpus=granted,
            purpose=purpose,
        )
    except DraftbenchError as error:
        print(f"draftbench: {error}", file=sys.stderr)
        sys.exit(1)


STUDY = open_study()
ROOT = STUDY.layout.root.as_posix()

RUN = StudyRun.of(STUDY)

# Never more units than the node has GPUs, whatever the command line says: Snakemake would pack them.
workflow.register_resource("gpus", STUDY.units)
if workflow.is_main_process:
    os.environ.update(RUN.job_environment())


wildcard_constraints:
    session=STUDY.session_pattern,
    cell=STUDY.cell_pattern,
    workload=STUDY.workload_pattern,


def begin_run():
    """Refuse a second measuring run in this results folder; analysis needs no lock."""
    if any(job.rule.name in MEASURING for job in workflow.dag.needrun_jobs()):
        try:
            RUN.claim()
        except DraftbenchError as error:
            print(f"draftbench: {error}", file=sys.stderr)
            sys.exit(1)


def end_run(succeeded):
    """Stop this run's servers and say where the results lie."""
    RUN.stop_servers()
    print(RUN.closing_words(succeeded), file=sys.stderr)


def session_units(wildcards):
    """GPU units that a session holds: its GPUs, or on a CPU all there are, so that nothing overlaps."""
    return STUDY.session_units(wildcards.session)


def session_threads(wildcards):
    """On a CPU all cores, so that no other job runs beside a measurement."""
    return STUDY.session_threads(wildcards.session, workflow.cores)


def session_priority(wildcards):
    """Running order of the plan; a server keeps its GPUs until its cells are done."""
    return STUDY.priority(wildcards.session)


def cell_prompts(wildcards):
    """Rendered prompts of a cell; their hash is in the cell's path, so dates do not matter."""
    return ancient(STUDY.cell_workload(wildcards.session, wildcards.cell))
