"""draftbench: does speculative decoding pay, on this hardware, with this model, for this work?

snakemake --cores all --resources gpus=8      the experiment of config.yaml; --configfile for another
snakemake -n -q rules                         what would run, and why
snakemake plan | workloads | interim | report | stale
"""

from snakemake.utils import min_version

min_version("9.27")


include: "rules/common.smk"


report: "report/workflow.rst"


rule all:
    input:
        STUDY.targets,


include: "rules/plan.smk"
include: "rules/workloads.smk"
include: "rules/serve.smk"
include: "rules/measure.smk"
include: "rules/aggregate.smk"
include: "rules/statistics.smk"
include: "rules/figures.smk"
include: "rules/report.smk"


onstart:
    begin_run()


onsuccess:
    end_run(succeeded=True)


onerror:
    end_run(succeeded=False)
