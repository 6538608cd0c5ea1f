"""What the rows say: is the output the model's own, and how much faster is each arm.

Needs: results/<experiment>/tables/requests.parquet, cells.parquet.
Makes: tables/losslessness.parquet; tables/speedups.parquet and the other tables of draftbench/tables.py.
"""


rule losslessness:
    input:
        plan=STUDY.layout.plan_json.as_posix(),
        tables=[f"{ROOT}/tables/requests.parquet", f"{ROOT}/tables/cells.parquet"],
        code=STUDY.code("losslessness", "statistics", "tables.py"),
    output:
        f"{ROOT}/tables/losslessness.parquet",
    log:
        f"{ROOT}/logs/losslessness.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/losslessness.py --plan {input.plan} > {log} 2> >(tee -a {log} >&2)"


rule statistics:
    input:
        plan=STUDY.layout.plan_json.as_posix(),
        tables=[
            f"{ROOT}/tables/{name}.parquet"
            for name in ("requests", "cells", "losslessness")
        ],
        code=STUDY.code("statistics", "tables.py"),
    output:
        [f"{ROOT}/tables/{name}.parquet" for name in STUDY.statistics_tables],
    log:
        f"{ROOT}/logs/statistics.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/statistics.py --plan {input.plan} > {log} 2> >(tee -a {log} >&2)"
