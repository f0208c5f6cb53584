"""Makes the tables of docs/reference/metrics.md anew from the code.

In: the page, the data dictionary, the report's English catalogue. Out: the page, its text outside the
tables untouched.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from decodelab import metricspage

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "docs/reference/metrics.md")
    args = parser.parse_args(argv)
    text = args.page.read_text(encoding="utf-8")
    args.page.write_text(metricspage.page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
