# decodelab: from config/config.yaml to the report. `snakemake --cores 1 report`; see README.md.
from snakemake.utils import min_version

min_version("9.0")


# Paths in rules are the checkout's, from wherever snakemake is called.
workdir: workflow.basedir


include: "workflow/rules/common.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/hosts.smk"


if STUDY.replay:

    include: "workflow/rules/replay.smk"

else:

    include: "workflow/rules/measure.smk"
    include: "workflow/rules/decide.smk"
    include: "workflow/rules/publish.smk"


include: "workflow/rules/parse.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/verify.smk"


# Here, since a default target in an included file is forgotten. Receipts and the published runs are
# listed too: with .snakemake lost, a missing one is then still noticed.
rule report:
    default_target: True
    input:
        STUDY.reports(),
        STUDY.summaries(),
        STUDY.html,
        STUDY.evidence,
        STUDY.certain(),
        *STUDY.branches(checkpoints),
        STUDY.plan_file,
        rules.aggregate.input,
