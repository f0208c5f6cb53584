"""
Brings raw logs that exist already under the names of the plan; nothing is measured.

Reads:  the study's raw_dir, else its replay folder
Writes: results/<study>/runs/decode_*.json, ixsmi_*.json, server_*.log and their two indexes
"""


rule import_raw:
    input:
        plan=STUDY.plan_file,
        raw=STUDY.raw_files(),
    output:
        f"{STUDY.results}/runs/decode_runs.json",
        f"{STUDY.results}/runs/ixsmi_capture.json",
    params:
        runs=f"{STUDY.results}/runs",
    shell:
        "{PY:q} scripts/import_raw.py --plan {input.plan:q} --out-dir {params.runs:q}"
