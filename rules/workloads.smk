"""The prompts, rendered once to token ids.

Needs: pinned packages, the target's tokenizer and chat template.
Makes: results/<experiment>/workloads/<name>-<hash>/{rendered,requests,references}.jsonl, manifest.json.
"""


rule workload:
    output:
        rendered=f"{ROOT}/workloads/{{workload}}/rendered.jsonl",
        requests=f"{ROOT}/workloads/{{workload}}/requests.jsonl",
        references=f"{ROOT}/workloads/{{workload}}/references.jsonl",
        manifest=f"{ROOT}/workloads/{{workload}}/manifest.json",
    log:
        f"{ROOT}/logs/workloads/{{workload}}.log",
    priority: 500_000
    conda:
        "../envs/driver.yaml"
    params:
        target=STUDY.config.target.path,
    shell:
        "python -P workflow_scripts/workloads.py --definition .draftbench/workloads/{wildcards.workload}.json"
        " --target-dir {params.target} --out-dir $(dirname {output.manifest}) --cache-dir .cache"
        " > {log} 2> >(tee -a {log} >&2)"


rule workloads:
    input:
        STUDY.workload_files,
