"""One job a cell: the session's server, one workload, one concurrency.

Needs: the session's warmup.json, the cell's rendered workload.
Makes: results/<experiment>/sessions/<session>/<cell>/cell.json with requests.parquet and chunks.parquet beside it.
The hashes in the path cover everything that decides the numbers, hence `ancient`: dates never make a cell stale.
"""


rule measure:
    input:
        warmup=ancient(f"{ROOT}/sessions/{{session}}/warmup.json"),
        prompts=cell_prompts,
    output:
        f"{ROOT}/sessions/{{session}}/{{cell}}/cell.json",
    log:
        f"{ROOT}/logs/{{session}}/{{cell}}.log",
    priority: session_priority
    conda:
        "../envs/driver.yaml"
    threads: session_threads
    resources:
        gpus=session_units,
    shell:
        "python -P workflow_scripts/measure.py --session {wildcards.session} --cell {wildcards.cell} --output {output}"
        " > {log} 2> >(tee -a {log} >&2)"
