"""The report, as PDF and as one self-contained HTML file.

Needs: tables, figures, the plan.
Makes: results/<experiment>/report.html, report.tex, and report.pdf where TeX is installed.
"""


rule report:
    input:
        plan=STUDY.layout.plan_json.as_posix(),
        tables=STUDY.table_files,
        figures=f"{ROOT}/figures/figures.json",
        code=STUDY.code(
            "latex_report",
            "html_report",
            "report.py",
            "report_content.py",
            "sentences.py",
            "figures",
            "labels.py",
        ),
        prose=STUDY.prose,
    output:
        STUDY.report_files,
    log:
        f"{ROOT}/logs/report.log",
    conda:
        "../envs/driver.yaml"
    shell:
        "python -P workflow_scripts/report.py --plan {input.plan} > {log} 2> >(tee -a {log} >&2)"


rule interim:
    log:
        f"{ROOT}/logs/interim.log",
    conda:
        "../envs/driver.yaml"
    params:
        plan=f"{ROOT}/interim/plan/plan.json",
    shell:
        "(python -P workflow_scripts/interim.py"
        " && python -P workflow_scripts/aggregate.py --plan {params.plan} --interim"
        " && python -P workflow_scripts/losslessness.py --plan {params.plan}"
        " && python -P workflow_scripts/statistics.py --plan {params.plan}"
        " && python -P workflow_scripts/figures.py --plan {params.plan}"
        " && python -P workflow_scripts/report.py --plan {params.plan} --interim)"
        " > {log} 2> >(tee -a {log} >&2)"
