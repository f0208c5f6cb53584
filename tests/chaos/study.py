"""The study of a chaos world: n launches of m runs, sized in tokens.

In:  how many, how long, which server. Out: a config for `Lab.write_config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.lab import REPO

MOODY = REPO / "tests" / "chaos" / "moody_server.py"


@dataclass(frozen=True)
class Size:
    """A run asks for two times `tokens`, some 5 ms each."""

    launches: int = 2
    runs: int = 2
    tokens: int = 130
    fake: bool = False  # the fake server, whose mood a test may change; else the simulator
    limits: tuple[tuple[str, float], ...] = ()

    @property
    def wanted(self) -> int:
        return self.launches * self.runs


def config(
    size: Size, hosts: dict[str, dict[str, Any]], checkout: Path, root: Path
) -> dict[str, Any]:
    """Every variant goes once to every host; the first host is the study's."""
    first, *others = hosts
    variants: dict[str, Any] = {"v": {}} | {f"v_{host}": {"host": host} for host in others}
    workloads = {f"w{i}": _workload(size.tokens + i) for i in range(size.runs)}
    limits = {"start_s": 30, "silence_s": 20, "probe_s": 10, "stop_grace_s": 3, "floor_tps": 20}
    return {
        "study": "chaos",
        "languages": ["en"],
        "host": first,
        "hosts": hosts,
        "limits": {**limits, **dict(size.limits)},
        "server": _server(size, checkout, root),
        "variants": variants,
        "workloads": workloads,
        "experiments": {
            "e": {"runs": {name: list(workloads) for name in variants}, "repeats": size.launches}
        },
    }


def _workload(tokens: int) -> dict[str, Any]:
    return {"prompt": "short", "concurrency": 1, "requests": 2, "max_tokens": tokens}


def _server(size: Size, checkout: Path, root: Path) -> dict[str, Any]:
    if size.fake:
        # It lies in no copy of the checkout: the world's folder in its words tells whose it is.
        words = ["{python}", "-S", str(MOODY), str(mood_file(root)), "--tag", str(root)]
        return {"command": words, "model": "tiny", "build": "fake", "engine": "other"}
    flags = {"--max-num-seqs": 2, "--max-model-len": 4096}
    words = ["{python}", f"{checkout}/scripts/sim/server.py"]
    return {"command": words, "model": "sim", "build": "sim", "engine": "vllm-v0", "flags": flags}


def mood_file(root: Path) -> Path:
    return root / "mood"
