"""Read a profile of the decode step, whatever made it.

In: files of one sort: a run's folder or its profile-*.jsonl or steps-*.jsonl files, Chrome traces of torch.profiler
(one a rank), or a table of regions, kernels or shares. Out: one JSON object on stdout, {"schema":
"decodelab.step_profile/1", ...}; of a table with several runs {"schema": "decodelab.profiles/1", "profiles": {run:
...}}. A file that is none of these exits 1 and says what was found.

    python scripts/read_profile.py [--run RUN] [--table] [--perfetto OUT.json.gz] FILE...
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from decodelab import step_export, step_read, step_show, step_table
from decodelab.step_table import Profile


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--run", help="this run of a table with several")
    parser.add_argument("--table", action="store_true", help="a table for people, no JSON")
    parser.add_argument(
        "--perfetto", type=Path, metavar="OUT", help="also write the timeline as a Chrome trace"
    )
    args = parser.parse_args(argv)
    try:
        profiles = _read(args.files, args.run)
        if args.perfetto:
            _export(profiles, args.perfetto)
    except (OSError, ValueError) as error:
        print(_refusal(args.files, error), file=sys.stderr)
        return 1
    if args.table:
        print("\n".join(step_show.lines(profiles)))
    else:
        print(json.dumps(_json(profiles), ensure_ascii=False, indent=1, allow_nan=False))
    return 0


def _read(files: list[Path], run: str | None) -> dict[str, Profile]:
    return step_read.read(files) if run is None else {"": step_read.one(files, run)}


def _export(profiles: dict[str, Profile], out: Path) -> None:
    if len(profiles) > 1:
        raise ValueError("several runs: choose one with --run for --perfetto")
    step_export.write(next(iter(profiles.values())), out)


def _json(profiles: dict[str, Profile]) -> object:
    if len(profiles) == 1:
        return step_table.to_json(next(iter(profiles.values())))
    told = {run: step_table.to_json(profile) for run, profile in profiles.items()}
    return {"schema": step_read.MANY, "profiles": told}


def _refusal(files: list[Path], error: Exception) -> str:
    """Where, what, allowed, hint."""
    where = ", ".join(map(str, files))
    return (
        f"read_profile: {where}: {error}\n  allowed: {step_read.FORMS}\n"
        "  hint: the first line of a table names its columns; a trace begins with { or ["
    )


if __name__ == "__main__":
    sys.exit(main())
