"""Decisions on disk: `results/<study>/decisions/<experiment>.<plan>.json` (schema decodelab.decision/1).

In: the plan, the receipts of the experiment's own launches. Out: a file with verdict and figures,
and the digest of what it was made of; a file that was made of other receipts is not read (damaged.py
takes it away, so that it is decided anew). Named by
the plan and the code that reads, as the plan's own file is: another smallest effect or another
parser is a missing file, and decides anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodelab import decisions, digest, receipts
from decodelab.store import write_json

SCHEMA = "decodelab.decision/1"


@dataclass(frozen=True)
class Folder:
    """`results` is relative to `root`, the checkout; `stem` is that of the plan's file."""

    plan: Mapping[str, Any]
    root: Path
    results: str
    stem: str

    def file(self, experiment: str) -> str:
        return f"{self.results}/decisions/{experiment}.{self.stem}.json"

    def receipts(self, experiment: str) -> dict[str, Any] | None:
        """Launch digest -> receipt of its own launches; None if one is not there."""
        found = {}
        for launch in decisions.own_launches(self.plan, experiment):
            whole = receipts.read(self.root / self.receipt(launch))
            if whole is None:
                return None
            found[launch] = whole
        return found

    def receipt(self, launch: str) -> str:
        return f"{self.results}/launches/{launch}.json"

    def without_receipt(self, experiment: str) -> list[str]:
        """The files of its own launches' receipts that are missing or damaged."""
        files = [self.receipt(launch) for launch in decisions.own_launches(self.plan, experiment)]
        return [file for file in files if receipts.read(self.root / file) is None]

    def made_of(self, receipts: Mapping[str, Any]) -> str:
        return digest.of("decision", {"plan": self.stem, "receipts": receipts})

    def write(
        self, experiment: str, decided: Mapping[str, Any], receipts: Mapping[str, Any]
    ) -> None:
        file = self.root / self.file(experiment)
        document = {"schema": SCHEMA, "experiment": experiment, "made_of": self.made_of(receipts)}
        write_json(file, {**document, **decided})

    def read(self, experiment: str) -> dict[str, Any] | None:
        """The decision, if there is one and the receipts are still those that it was made of."""
        found = self._content(experiment)
        made_of = self.receipts(experiment)
        if found is None or made_of is None or found.get("made_of") != self.made_of(made_of):
            return None
        return found

    def unusable(self, experiment: str) -> str | None:
        """Why a decision that is there is not read; None for one that is missing or read. One whose
        receipts are not all there is decided anew with them.
        """
        if not (self.root / self.file(experiment)).is_file():
            return None
        if self._content(experiment) is None:
            return "not a decision"
        complete = self.receipts(experiment) is not None
        return "made of other receipts" if complete and self.read(experiment) is None else None

    def _content(self, experiment: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.root / self.file(experiment)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(found, dict) and found.get("schema") == SCHEMA
        return found if whole else None

    def choices(self) -> dict[str, decisions.Choice]:
        """Which experiments are to be measured by what is decided now."""
        found = {name: self.read(name) for name in decisions.deciders(self.plan)}
        return decisions.choices(self.plan, {n: d for n, d in found.items() if d is not None})
