"""Read a file of SMI output.

In: the file (raw text or a capture). Out: one JSON object on stdout:
{"tool", "samples": [{"t", "gpu", "uuid", metrics...}], "rejected": [...], "messages": [...]}.
`t` is the tool's own time text, or seconds on the capture's clock. An unreadable file exits 1 and
says what was looked for. The tools: see --help.

    python scripts/read_smi.py [--tool T] [--fields index,utilization.gpu,...] FILE
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from decodelab import telemetry

ALSO = ("bus", "chip", "serial", "name", "processes")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--tool", choices=telemetry.TOOLS, help="default: told by the text")
    parser.add_argument(
        "--fields", default="", help="comma-separated field names of a CSV without a header"
    )
    args = parser.parse_args(argv)
    fields = [name.strip() for name in args.fields.split(",") if name.strip()]
    try:
        parsed, times = telemetry.read_file(args.file, args.tool, fields)
    except (OSError, telemetry.UnreadableSmi) as error:
        print(f"read_smi: {args.file}: {error}", file=sys.stderr)
        return 1
    samples = [
        {"t": t, "gpu": r.gpu, "uuid": r.uuid, **r.values, **{n: getattr(r, n) for n in ALSO}}
        for r, t in zip(parsed.readings, times, strict=True)
    ]
    out = {
        "tool": parsed.tool,
        "samples": samples,
        "rejected": parsed.rejected,
        "messages": parsed.messages,
    }
    print(json.dumps(out, ensure_ascii=False, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
