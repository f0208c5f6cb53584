"""
Turns named run files into tables.

Reads:  results/<study>/runs/
Writes: results/<study>/tables/{requests,runs,telemetry,gpus,starts,regions}.csv and profiles.json;
        results/<study>/traces/
"""


rule aggregate:
    input:
        plan=STUDY.plan_file,
        runs=f"{STUDY.results}/runs/decode_runs.json",
        captures=f"{STUDY.results}/runs/ixsmi_capture.json",
    output:
        expand(f"{STUDY.results}/tables/{{table}}.csv", table=TABLES),
        f"{STUDY.results}/tables/profiles.json",
        directory(f"{STUDY.results}/traces"),
    params:
        runs=f"{STUDY.results}/runs",
        tables=f"{STUDY.results}/tables",
    shell:
        "{PY:q} scripts/aggregate.py --plan {input.plan:q} --runs {params.runs:q}"
        " --out {params.tables:q}"
