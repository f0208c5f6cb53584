"""Which kinds of figure have an interactive form, and their files beside the drawn ones.

In: a figure's entry of figures.json. Out: `<id>.json` beside its SVG: for each language the data
that workflow/report/html/figures.js draws. A kind that is not in the table shows its SVG in the
HTML too.

A new kind is one line of `KINDS`: a function that takes the findings, the entry's subject (the
experiment's name, or the run's; of the whole study none) and a catalogue, and returns a `Plot` or None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from decodelab import (
    plot_cached,
    plot_curve,
    plot_effects,
    plot_gaps,
    plot_gates,
    plot_grid,
    plot_pareto,
    plot_step_stack,
    plot_step_timeline,
    plot_timeline,
    words,
)
from decodelab.findings import Findings
from decodelab.plot import Plot
from decodelab.words import Words

KINDS: Mapping[str, Callable[[Findings, str, Words], Plot | None]] = {
    "gates": plot_gates.build,
    "curve": plot_curve.build,
    "effects": plot_effects.build,
    "itl": plot_gaps.build,
    "cached": plot_cached.build,
    "timeline": plot_timeline.requests,
    "telemetry": plot_timeline.telemetry,
    "step_stack": plot_step_stack.build,
    "step_timeline": plot_step_timeline.build,
    "grid": plot_grid.build,
    "pareto": plot_pareto.build,
}


def write(findings: Findings, entry: Mapping[str, Any], folder: Path) -> str | None:
    """Write the plot of a figure; returns its file's name, None where it has no interactive form."""
    build = KINDS.get(entry["kind"])
    made = {
        language: build(findings, entry["subject"], words.load(language)) if build else None
        for language in words.LANGUAGES
    }
    if any(found is None for found in made.values()):
        return None
    documents = {language: found.document() for language, found in made.items() if found}
    name = f"{entry['id']}.json"
    text = json.dumps(documents, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    (folder / name).write_text(text + "\n", encoding="utf-8")
    return name
