"""
Answers the study's questions.

Reads:  results/<study>/tables/
Writes: results/<study>/verdicts.json
"""


rule judge:
    input:
        plan=STUDY.plan_file,
        tables=rules.aggregate.output,
    output:
        f"{STUDY.results}/verdicts.json",
    params:
        tables=rules.aggregate.params.tables,
    shell:
        "{PY:q} scripts/judge.py --plan {input.plan:q} --tables {params.tables:q} --out {output:q}"
