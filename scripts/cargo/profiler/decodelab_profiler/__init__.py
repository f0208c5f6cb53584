"""The step profiler: times the methods of an unmodified engine from inside its own processes.

Loaded by the sitecustomize beside this package; `start` reads the specification that DECODELAB_PROFILE names
and lays a post-import hook on every module in the table of targets. Standard library only, Python 3.8+.
"""

import json
import sys


def start(spec_path: str) -> None:
    """Raises OSError or ValueError when the specification cannot be read; the caller tells it."""
    with open(spec_path, encoding="utf-8") as file:
        spec = json.load(file)
    from . import hooks, install, writer

    sink = writer.Writer(spec["folder"], spec.get("mode") or "event")
    installer = install.Installer(spec, sink)
    sys.meta_path.insert(0, hooks.AfterImport(installer.modules(), installer.imported))
