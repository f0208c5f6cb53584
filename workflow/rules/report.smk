"""
Writes what people read.

Reads:  results/<study>/tables/, verdicts.json
Writes: report/<study>/figures/, report/<study>/report.md (zh), report.en.md (en), report.html (both), evidence.json,
        summary.md (zh), summary.en.md (en): one page each
Steps:  figures -> write_report -> write_html -> write_evidence; write_summary beside them; report_partial and
        experiment_<name> beside them
"""


rule figures:
    input:
        plan=STUDY.plan_file,
        tables=rules.aggregate.output,
        verdicts=rules.judge.output,
    output:
        f"{STUDY.report}/figures/figures.json",
    params:
        tables=rules.aggregate.params.tables,
        figures=f"{STUDY.report}/figures",
    shell:
        "{PY:q} scripts/draw_figures.py --plan {input.plan:q} --tables {params.tables:q}"
        " --verdicts {input.verdicts:q} --out {params.figures:q}"


rule write_report:
    input:
        plan=STUDY.plan_file,
        tables=rules.aggregate.output,
        verdicts=rules.judge.output,
        figures=rules.figures.output,
    output:
        f"{STUDY.report}/{{page}}.md",
    wildcard_constraints:
        page=r"report(\.\w+)?",
    params:
        tables=rules.aggregate.params.tables,
        figures=rules.figures.params.figures,
        language=STUDY.language_of_page,
    shell:
        "{PY:q} scripts/write_report.py --plan {input.plan:q} --tables {params.tables:q}"
        " --verdicts {input.verdicts:q} --figures {params.figures:q}"
        " --language {params.language} --out {output:q}"


rule write_summary:
    input:
        plan=STUDY.plan_file,
        tables=rules.aggregate.output,
        verdicts=rules.judge.output,
    output:
        f"{STUDY.report}/{{page}}.md",
    wildcard_constraints:
        page=r"summary(\.\w+)?",
    params:
        tables=rules.aggregate.params.tables,
        language=STUDY.language_of_page,
    shell:
        "{PY:q} scripts/write_summary.py --plan {input.plan:q} --tables {params.tables:q}"
        " --verdicts {input.verdicts:q} --language {params.language} --out {output:q}"


rule write_html:
    input:
        pages=STUDY.reports(),
        figures=rules.figures.output,
    output:
        STUDY.html,
    params:
        figures=rules.figures.params.figures,
        pages=STUDY.pages(),
    shell:
        "{PY:q} scripts/write_html.py {params.pages} --figures {params.figures:q} --out {output:q}"


rule write_evidence:
    input:
        plan=STUDY.plan_file,
        runs=rules.aggregate.input.runs,
        captures=rules.aggregate.input.captures,
        tables=rules.aggregate.output,
        verdicts=rules.judge.output,
        figures=rules.figures.output,
        pages=STUDY.reports(),
        summaries=STUDY.summaries(),
        html=STUDY.html,
    output:
        STUDY.evidence,
    params:
        results=STUDY.results,
        report=STUDY.report,
    shell:
        "{PY:q} scripts/write_evidence.py --plan {input.plan:q} --results {params.results:q}"
        " --report {params.report:q} --out {output:q}"


rule report_partial:
    params:
        config=STUDY.config,
    shell:
        "{PY:q} scripts/report_partial.py --config {params.config:q}"


for name in STUDY.plan["experiments"]:

    rule:
        name:
            f"experiment_{name}"
        input:
            STUDY.certain(name),
            *STUDY.branches(checkpoints, name),
        params:
            config=STUDY.config,
            experiment=name,
        shell:
            "{PY:q} scripts/report_partial.py --config {params.config:q} --experiment {params.experiment:q}"
