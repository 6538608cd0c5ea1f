"""Servers: first launch and first warm-up of each session, kept as provenance.

Needs: the plan, the built workloads.
Makes: results/<experiment>/sessions/<session>/{launch,warmup}.json.
A job leases a server; a keeper process owns it and stops it when the run is gone.
"""


rule launch:
    output:
        f"{ROOT}/sessions/{{session}}/launch.json",
    log:
        f"{ROOT}/logs/{{session}}/launch.log",
    priority: session_priority
    conda:
        "../envs/driver.yaml"
    threads: session_threads
    resources:
        gpus=session_units,
    shell:
        "python -P workflow_scripts/launch.py --session {wildcards.session} --output {output}"
        " > {log} 2> >(tee -a {log} >&2)"


rule warmup:
    input:
        ancient(f"{ROOT}/sessions/{{session}}/launch.json"),
        ancient(STUDY.workload_files),
    output:
        f"{ROOT}/sessions/{{session}}/warmup.json",
    log:
        f"{ROOT}/logs/{{session}}/warmup.log",
    priority: session_priority
    conda:
        "../envs/driver.yaml"
    threads: session_threads
    resources:
        gpus=session_units,
    shell:
        "python -P workflow_scripts/warmup.py --session {wildcards.session} --output {output}"
        " > {log} 2> >(tee -a {log} >&2)"
