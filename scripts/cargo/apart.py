"""A helper process that may outlive us: a session of its own, and files for its words.

In:  the server's python, our script, its environment, an empty folder, what it is asked. Out: the
process. Nothing here ends it: what hangs in a device or an import is left alone (see DECISIONS).
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Mapping


def start(
    python: str, script: str, env: Mapping[str, str], folder: str, asked: Mapping[str, Any]
) -> "subprocess.Popen[bytes]":
    """`script folder asked-as-JSON`, working in `folder`/cwd; what it prints goes into `folder`/said."""
    cwd = os.path.join(folder, "cwd")
    os.mkdir(cwd)
    with open(os.path.join(folder, "said"), "wb") as said:
        return subprocess.Popen(
            [python, script, folder, json.dumps(asked)],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
