"""
Gives what was measured the names that people use.

Reads:  receipts of what is chosen, decisions; the raw store
Writes: results/<study>/runs/decode_*.json, ixsmi_*.json, server_*.log and their two indexes
"""


rule decode_runs:
    input:
        *STUDY.branches(checkpoints),
        receipts=STUDY.certain(),
        plan=STUDY.plan_file,
    output:
        f"{STUDY.results}/runs/decode_runs.json",
    shell:
        "{PY:q} scripts/publish_runs.py decode_runs --plan {input.plan:q} --out {output:q}"


rule ixsmi_capture:
    input:
        *STUDY.branches(checkpoints),
        receipts=STUDY.certain(),
        plan=STUDY.plan_file,
    output:
        f"{STUDY.results}/runs/ixsmi_capture.json",
    shell:
        "{PY:q} scripts/publish_runs.py ixsmi_capture --plan {input.plan:q} --out {output:q}"
