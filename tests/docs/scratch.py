"""A clone of the checkout in which a document's commands are run as a reader would.

In: blocks of one page, in order. Out: for each that is run its exit code and output. A `yaml` block with
`file=PATH` is written there, one with `into=PATH` is merged into that file, as the page tells the reader.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import Block
from tests.e2e.lab import Lab

DEADLINE_S = 600  # what hangs must end; no claim about speed


@dataclass(frozen=True)
class Ran:
    exit_code: int
    output: str


class Scratch:
    def __init__(self, root: Path) -> None:
        self.lab = Lab.copy(root / "decodelab")
        self.root = self.lab.root
        (self.root / ".venv").symlink_to(sys.prefix)
        home = root / "home"
        home.mkdir()
        venv = Path(sys.prefix) / "bin"
        self.env = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("DECODELAB_", "SNAKEMAKE_"))
            },
            "HOME": str(home),
            "PATH": f"{venv}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "160",
        }

    def run(self, script: str) -> Ran:
        """The commands of a block as one script that ends at the first failure."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        return Ran(done.returncode, done.stdout)

    def take(self, block: Block) -> None:
        """A block of YAML that the page tells the reader to write, or to write into a file."""
        if "file" in block.marks:
            target = self.root / block.marks["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        if "into" in block.marks:
            target = self.root / block.marks["into"]
            known = yaml.safe_load(target.read_text(encoding="utf-8"))
            merged = _merge(known, yaml.safe_load(block.text))
            text = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)
            target.write_text(text, encoding="utf-8")


def _merge(known: Any, told: Any) -> Any:
    if not (isinstance(known, dict) and isinstance(told, dict)):
        return told
    return {**known, **{key: _merge(known.get(key), value) for key, value in told.items()}}
