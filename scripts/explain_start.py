"""Say why a server start failed.

In: its log file. Out: one JSON object on stdout (see cargo/start_cause.py).

    python scripts/explain_start.py LOG [--rc N] [--timed-out]
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import zlib
from pathlib import Path

from cargo import start_cause

KEYS = ("class", "root_cause", "line", "stage", "hint", "confidence", "side")


def read_log(path: Path) -> str:
    """The log as text; .gz too.  Bytes that are no UTF-8 are replaced, line ends kept (line numbers
    count "\\n").
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data.decode("utf-8", errors="replace")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, help="the server's log")
    parser.add_argument(
        "--rc", type=int, default=None, help="exit code of the server, if known (negative: signal)"
    )
    parser.add_argument(
        "--timed-out", action="store_true", help="the start was given up after its time limit"
    )
    args = parser.parse_args(argv)
    try:
        text = read_log(args.log)
    except (OSError, EOFError, zlib.error) as error:
        print(f"explain_start: cannot read {args.log}: {error}", file=sys.stderr)
        return 1
    found = start_cause.explain(text, exit_code=args.rc, timed_out=args.timed_out)
    print(json.dumps({key: found[key] for key in KEYS}, ensure_ascii=False, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
