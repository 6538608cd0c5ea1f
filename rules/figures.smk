"""Figures, each on its own, from the tables alone.

Needs: results/<experiment>/tables/*.parquet.
Makes: results/<experiment>/figures/figures.json and the figure files it lists.
"""


rule figures:
    input:
        plan=STUDY.layout.plan_json.as_posix(),
        tables=STUDY.table_files,
        code=STUDY.code("figures", "labels.py", "tables.py"),
    output:
        index=f"{ROOT}/figures/figures.json",
        pictures=report(
            directory(f"{ROOT}/figures/svg"),
            patterns=["{figure}.svg"],
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{ROOT}/logs/figures.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/figures.py --plan {input.plan} > {log} 2> >(tee -a {log} >&2)"
