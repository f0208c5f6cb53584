"""The regions of a decode step: their names, order and kind.

A region's time is exclusive: what a region inside it takes is that one's alone. Regions that a user adds are of
kind `work`. `unattributed` is what lies in a step and in no region.
"""

from __future__ import annotations

# kind: work (of the model), host (of Python around it), sync (host waits for the device), collective.
REGIONS = {
    "scheduler": "host",
    "handover": "host",  # between engine and worker: the call and its answer
    "prepare": "host",
    "forward": "work",  # of the model, what no inner region has: norms, projections, embedding
    "attention": "work",
    "linear_attention": "work",
    "moe": "work",
    "mlp": "work",
    "collective": "collective",
    "logits": "work",
    "sampler": "work",
    "sync": "sync",
    "launch_gap": "host",  # of a trace: the device idles until the host has launched the next kernel
    "output": "host",
    "engine": "host",  # the engine's loop around its steps
}
UNATTRIBUTED = "unattributed"
PHASES = ("prefill", "decode", "mixed")


def kind(region: str) -> str:
    return REGIONS.get(region, "work")


def order(region: str) -> tuple[int, str]:
    """Sorting key: as a step goes, then the user's own by name, what has no region last."""
    names = list(REGIONS)
    place = names.index(region) if region in REGIONS else len(names)
    return (place + (region == UNATTRIBUTED), region)
