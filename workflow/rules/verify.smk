"""
Recomputes the report from the raw files and says which numbers differ; changes nothing.

Reads:  report/<study>/ with its evidence.json, results/<study>/, the raw files
Writes: nothing (a temporary folder)
"""


rule verify:
    params:
        config=STUDY.config,
    shell:
        "{PY:q} scripts/verify.py --config {params.config:q}"
