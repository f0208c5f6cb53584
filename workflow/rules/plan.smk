"""
Writes down what the study is: variants, launches, runs, questions.

Reads:  the study's config file
Writes: results/<study>/plan/<digest>.json
"""


rule plan:
    output:
        STUDY.plan_file,
    params:
        config=STUDY.config,
    shell:
        "{PY:q} scripts/make_plan.py --config {params.config:q} --out {output:q}"
