"""
Asks the hosts, and brings home what lies there; measures nothing for a report.

Reads:  the study's config file, config/hosts.local.yaml, the hosts
Writes: results/<study>/smoke/ (smoke), results/<study>/backends/ (probe), results/fetched/ (fetch_raw); the others
        write nothing
Steps:  check_hosts and probe before a study, smoke for its first start, status while it runs, stop; fetch_raw
"""


rule check_hosts:
    params:
        config=STUDY.config,
        host=STUDY.asked_host,
    shell:
        "{PY:q} scripts/check_hosts.py --config {params.config:q} {params.host:q}"


rule probe:
    params:
        config=STUDY.config,
        host=STUDY.asked_host,
    shell:
        "{PY:q} scripts/probe_backends.py --config {params.config:q} {params.host:q}"


rule smoke:
    params:
        config=STUDY.config,
    shell:
        "exec {PY:q} scripts/smoke.py --config {params.config:q}"


rule status:
    params:
        config=STUDY.config,
    shell:
        "{PY:q} scripts/status.py --config {params.config:q}"


rule stop:
    params:
        config=STUDY.config,
    shell:
        "{PY:q} scripts/stop_queue.py --wait 60 --config {params.config:q}"


rule fetch_raw:
    params:
        config=STUDY.config,
        host=STUDY.asked_host,
        folder=STUDY.asked_folder,
    shell:
        "{PY:q} scripts/fetch_raw.py --config {params.config:q} {params.host:q} {params.folder:q}"
