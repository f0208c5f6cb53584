# decodelab: from config/config.yaml to the report. `snakemake --cores 1 report`; see README.md.
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"
include: "workflow/rules/plan.smk"


if STUDY.replay:

    include: "workflow/rules/replay.smk"

else:

    include: "workflow/rules/measure.smk"
    include: "workflow/rules/publish.smk"


include: "workflow/rules/parse.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/report.smk"
