"""Writes a study's plan: what will be started and run, as one file.

In: --config FILE and control keys (--set KEY=VALUE). Out: --out PLAN.json, or a table with --print.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from decodelab import call, config, plan, plantable
from decodelab.mistakes import ConfigError
from decodelab.store import write_json

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the study's config file")
    parser.add_argument("--out", type=Path, help="where the plan is written")
    parser.add_argument(
        "--print", action="store_true", dest="show", help="print a table of launches and runs"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a control key, as --config of snakemake",
    )
    args = parser.parse_args(argv)
    if not args.out and not args.show:
        parser.error("say --out PLAN.json or --print")
    try:
        keys = control(args.set) or dict(call.current().control)
        document = plan.expand(config.load(args.config, keys, ROOT), ROOT)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if args.show:
        print(plantable.table(document))
    if args.out:
        write_json(args.out, document)
    return 0


def control(pairs: list[str]) -> dict[str, object]:
    """KEY=VALUE as Snakemake reads it: the value is YAML."""
    return {key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in pairs)}


if __name__ == "__main__":
    sys.exit(main())
