"""
Measures: one job is one launch, a fresh server start with its runs.

Reads:  nothing that Snakemake tracks; the receipt's name is the digest of all that is measured, so a missing file is the
        only reason to measure. launch.py reads the config again and adopts what the raw store holds.
Writes: results/<study>/launches/<digest>.json (receipt); results/raw/ (never declared, never deleted)
"""


rule launch:
    output:
        f"{STUDY.results}/launches/{{launch}}{{again}}.json",
    log:
        f"{STUDY.results}/logs/{{launch}}{{again}}.log",
    wildcard_constraints:
        launch="|".join(STUDY.launches),
        again=r"(\.retry-[0-9-]+|\.[0-9]+)?",
    priority: STUDY.launch_priority
    # No core: the work is on the host, and two hosts measure at once even under --cores 1.
    threads: 0
    resources:
        **{f"host_{h}": STUDY.share_of(h) for h in STUDY.hosts},
    params:
        config=STUDY.config,
    # exec: the job is a child of Snakemake, and dies with it (lifetime.py).
    shell:
        "exec {PY:q} scripts/launch.py --config {params.config:q} --launch {wildcards.launch}"
        " --receipt {output:q} --log {log:q}"


onerror:
    # SIGTERM drains Snakemake: the running launch ends, nothing new starts, so the host's queue must not go on either.
    # A call that measures nothing has no queue of its own, and leaves another call's alone.
    if call.current().queue:
        shell("{PY:q} scripts/stop_queue.py --drain --best-effort --config {STUDY.config:q}")
