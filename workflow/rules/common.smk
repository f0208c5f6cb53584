"""
Opens the study that this call is about and sets what must hold whatever flags the user gives.

Reads:  config/config.yaml, or the one file of --configfile; the control keys of --config
Makes:  STUDY (decodelab.study.Study), PY (this interpreter), one launch at a time on each host
        (what --config says of one host for check_hosts and fetch_raw is kept aside of the study)
"""

import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

sys.path.insert(0, os.path.join(workflow.basedir, "scripts"))

from decodelab import aside, call, damaged, lifetime
from decodelab.mistakes import ConfigError
from decodelab.study import TABLES, open_study

PY = sys.executable
lifetime.begin()
# Only what the command line gives by --config; the study's own file is read by open_study.
CONTROL = (
    aside.begin(workflow.config_settings.config, sys.argv[1:])
    if workflow.is_main_process
    else call.current().control
)

try:
    STUDY = open_study(
        workflow.overwrite_configfiles, CONTROL, Path(workflow.basedir), aside.host()
    )
    if workflow.is_main_process:
        # Snakemake knows its targets only after parsing; the command line has them now.
        call.begin(CONTROL, STUDY.wanted(sys.argv[1:]), STUDY.code_digest())
        if call.current().queue:
            STUDY = damaged.seen_to(STUDY, sys.argv[1:], logger.warning)
        # Also in a dry run, which has no onstart.
        for line in STUDY.branches_told() if call.current().queue else []:
            logger.info(line)
    STUDY.check_retry(call.current())
except ConfigError as error:
    raise WorkflowError(str(error)) from None

for host in STUDY.hosts:
    workflow.register_resource(f"host_{host}", 1)
