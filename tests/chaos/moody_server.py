"""The fake server in a mood that can change without a change of its command line.

    python -S moody_server.py MOOD_FILE [flags of fake_server.py]

In:  a file of further flags, one a line; no file, no mood. A command that changed would be another
server to the study, so that a mended server could never finish what the broken one began.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FAKE = Path(__file__).resolve().parents[1] / "e2e" / "fakes" / "fake_server.py"

if __name__ == "__main__":
    file, *flags = sys.argv[1:]
    if "--model" in flags:  # which the fake server has no need of
        at = flags.index("--model")
        del flags[at : at + 2]
    mood = Path(file).read_text(encoding="utf-8").splitlines() if Path(file).exists() else []
    os.execv(sys.executable, [sys.executable, "-S", str(FAKE), *flags, *mood])
