"""The plan, written before anything is measured.

Needs: the plan as computed when the workflow is read, a pure function of config, inventory and model facts.
Makes: results/<experiment>/plan/plan.json, bench-plan.md.
No measuring rule takes it as input, so that a reworded plan never reruns a measurement; launches wait for it instead.
"""


rule plan:
    input:
        RUN.plan_file,
    output:
        data=f"{ROOT}/plan/plan.json",
        document=report(
            f"{ROOT}/plan/bench-plan.md", caption="../report/plan.rst", category="Plan"
        ),
    log:
        f"{ROOT}/logs/plan.log",
    priority: 1_000_000
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/plan.py > {log} 2> >(tee -a {log} >&2)"


rule stale:
    log:
        f"{ROOT}/logs/stale.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/stale.py 2> >(tee {log} >&2)"
