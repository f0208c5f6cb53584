"""Found by Python itself at the start of every process that has this folder on PYTHONPATH.

Without DECODELAB_PROFILE in the environment it does nothing but what would have been done without it: the
next sitecustomize on sys.path (which this one hides) runs.
"""

import os
import sys


def _start_profiler() -> None:
    if not os.environ.get("DECODELAB_PROFILE"):
        return
    try:
        import importlib

        importlib.import_module("decodelab_profiler").start(os.environ["DECODELAB_PROFILE"])
    except Exception as fault:  # a server must start, profiled or not
        sys.stderr.write("decodelab: the step profiler did not start: %r\n" % (fault,))


def _run_the_hidden_one() -> None:
    from importlib import machinery, util

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start_profiler()
_run_the_hidden_one()
