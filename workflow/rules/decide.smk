"""
Decides which branch of a `when:` goes on.

Reads:  the receipts of one experiment's own launches; the raw store
Writes: results/<study>/decisions/<experiment>.<plan>.json, and what it was made of in <experiment>/
Steps:  whatever waits for an experiment asks this checkpoint before it is measured
"""


checkpoint decide:
    input:
        before=STUDY.before_decision(checkpoints),
        plan=STUDY.plan_file,
    output:
        STUDY.decision_file("{experiment}"),
    wildcard_constraints:
        experiment=STUDY.deciders_pattern,
    # Before any launch: the sooner it is known, the sooner the branch is in the host's queue.
    priority: len(STUDY.launches) + 1
    shell:
        "{PY:q} scripts/decide.py --plan {input.plan:q} --experiment {wildcards.experiment:q}"
