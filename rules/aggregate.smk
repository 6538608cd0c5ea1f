"""All recorded rows in one place.

Needs: cell.json and the Parquet files of every cell of the plan.
Makes: results/<experiment>/tables/{requests,cells,failures,deviations}.parquet (and .csv), index.csv.
From here on no GPU is needed.
"""


rule aggregate:
    input:
        plan=STUDY.layout.plan_json.as_posix(),
        cells=STUDY.cell_files,
        code=STUDY.code("statistics", "tables.py"),
    output:
        [
            f"{ROOT}/tables/{name}.parquet"
            for name in ("requests", "cells", "failures", "deviations")
        ],
        f"{ROOT}/index.csv",
    log:
        f"{ROOT}/logs/aggregate.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/aggregate.py --plan {input.plan} > {log} 2> >(tee -a {log} >&2)"
