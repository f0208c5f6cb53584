"""Step: write the report of a study as one HTML file. Reads the Markdown pages of its languages and
the folder of its figures; writes report.html.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from decodelab import html_page, words


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--page",
        nargs=2,
        action="append",
        required=True,
        metavar=("LANGUAGE", "FILE"),
        help="a language and its Markdown page, in the order of the study's languages",
    )
    parser.add_argument(
        "--figures", type=Path, required=True, help="folder of the figures, with figures.json"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    unknown = [language for language, _ in args.page if language not in words.LANGUAGES]
    if unknown:
        parser.error(f"no such language: {unknown[0]}; there are {', '.join(words.LANGUAGES)}")
    pages = {language: Path(file).read_text(encoding="utf-8") for language, file in args.page}
    data = html_page.write(pages, args.figures).encode("utf-8")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(data)
    print(f"{args.out} ({len(data) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
