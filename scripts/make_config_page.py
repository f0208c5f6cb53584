"""Makes the key reference of config/README.md anew from the schema.

In: the page and the schema. Out: the page, its text outside the reference untouched.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from decodelab import configpage

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "config/README.md")
    args = parser.parse_args(argv)
    text = args.page.read_text(encoding="utf-8")
    args.page.write_text(configpage.page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
