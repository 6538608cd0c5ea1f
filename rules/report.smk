"""The report, as PDF and as one self-contained HTML file.

Needs: tables, figures, the plan.
Makes: results/<experiment>/report.html, report.tex, and report.pdf where TeX is installed.
"""


rule report:
    input:
        tables=STUDY.table_files,
        figures=f"{ROOT}/figures/figures.json",
        code=STUDY.code("latex_report", "html_report", "sentences.py", "labels.py"),
        prose=STUDY.prose,
    output:
        STUDY.report_files,
    log:
        f"{ROOT}/logs/report.log",
    params:
        plan=STUDY.plan_sha256,
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/report.py > {log} 2> >(tee -a {log} >&2)"


rule interim:
    log:
        f"{ROOT}/logs/interim.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "for step in aggregate losslessness statistics figures report; do"
        " python -P workflow_scripts/$step.py --interim > {log} 2> >(tee -a {log} >&2) || exit 1; done"
