"""Step: give measured runs (or captures) the plan's names. Reads receipts and the raw store, writes
results/<study>/runs/.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from decodelab import published


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["decode_runs", "ixsmi_capture"])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the index file to write")
    args = parser.parse_args(argv)
    plan = json.loads(args.plan.read_text(encoding="utf-8"))
    folder = args.out.parent
    receipts = {}
    for launch in plan["launches"]:
        file = folder.parent / "launches" / f"{launch['digest']}.json"
        receipts[launch["digest"]] = json.loads(file.read_text(encoding="utf-8"))
    publish = published.publish_runs if args.what == "decode_runs" else published.publish_captures
    publish(plan, receipts, Path.cwd(), folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
