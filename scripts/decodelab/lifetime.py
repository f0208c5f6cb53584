"""A job lives no longer than the Snakemake that began it, however that one died: a forgotten job
would go on fetching and writing receipts beside the next call's.

In:  the environment variable DECODELAB_WORKFLOW that the Snakefile sets: the pid of the Snakemake
that reads it, the parent of its jobs (their rules `exec` them). Out: the job's end. Without the
variable (a step run by hand) a job ends by itself.
"""

from __future__ import annotations

import ctypes
import os
import signal

VARIABLE = "DECODELAB_WORKFLOW"
PR_SET_PDEATHSIG = 1


def begin() -> None:
    """Set the variable for every job of this Snakemake."""
    os.environ[VARIABLE] = str(os.getpid())


def end_with_workflow() -> None:
    """From here on the kernel ends this process with Snakemake.

    By SIGKILL: under nohup SIGHUP is ignored, for jobs as well, and SIGTERM means to drain.
    """
    workflow = os.environ.get(VARIABLE)
    if workflow is None:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(workflow):  # it died before the line above, maybe before Python was up
        raise SystemExit("the snakemake that began this job is gone")
