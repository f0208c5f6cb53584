"""Studies whose truth is known: the real plan of a small config, and tables of simulated requests.

In:  how often each arm starts, whether an A/A arm measures the floor, the noise, the true effect.
Out: plan and tables, as the judge gets them of a real study; the queue's order is the plan's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from decodelab import config, plan
from decodelab.columns import COLUMNS
from decodelab.tables import Tables

RATE = 8.7  # tok/s, of the baseline without noise
TOKENS = 128
REQUESTS = 4
AA_STARTS = 3  # of each of the two arms that measure a floor for one-launch questions
BETTER = ("cand", "cand-mns4")  # of several candidates the first
SHAPES = ("none", "linear", "step", "rising")


@dataclass(frozen=True)
class Noise:
    """As in the field, relative: inside a start, between starts, over the order; first request."""

    within: float = 0.003
    across: float = 0.02
    drift: float = 0.03
    first_request: float = 0.8  # of the rate of the others
    shape: str = "linear"

    def drifts(self, random: np.random.Generator, n: int) -> np.ndarray:
        """Logarithm of the host's speed at each of n places of the order; either sign, but for
        `rising`, which always favours what starts later.
        """
        if self.shape == "none" or n < 2:
            return np.zeros(n)
        size = math.log1p(self.drift)
        if self.shape == "rising":
            return size * np.arange(n) / (n - 1)
        sign = random.choice([-1.0, 1.0])
        if self.shape == "linear":
            return sign * size * np.arange(n) / (n - 1)
        return sign * size * (np.arange(n) >= random.integers(1, n))


@dataclass(frozen=True)
class Design:
    """`aa`: none | own (the experiment's own A/A arm) | other (that of another experiment)."""

    starts: int
    aa: str = "none"
    cells: int = 1  # candidates that the one question asks for, a grid where several

    @property
    def name(self) -> str:
        return {"none": "field", "own": "A/A", "other": "A/A elsewhere"}[self.aa]


def planned(design: Design, folder: Path) -> dict[str, Any]:
    """The plan of a study of two variants, made by the product from a config file."""
    question = {
        "kind": "compare_variants",
        "metric": "decode_rate",
        "workload": "short",
        "baseline": "base",
        "candidate": "cand",
        "smallest_effect": "5%",
    }
    asked = {
        "runs": {"base": ["short"], "cand": ["short"]},
        "repeats": design.starts,
        "question": question,
    }
    experiments: dict[str, Any] = {"E": asked}
    if design.aa == "own":
        asked["aa"] = "base"
    elif design.aa == "other":
        floor = {"runs": {"base": ["short"]}, "repeats": AA_STARTS, "aa": "base"}
        experiments = {"floor": floor, "E": asked}
    study = {
        "study": "calibration",
        "languages": ["en"],
        "host": "h",
        "hosts": {"h": {"transport": "local", "telemetry": {"tool": "none"}}},
        "server": {"command": ["{python}"], "model": "m", "engine": "vllm-v0"},
        "variants": {"base": {}, "cand": {"flags": {"--max-num-seqs": 4}}},
        "workloads": {
            "short": {
                "prompt": {"tokens": 40},
                "concurrency": 1,
                "requests": REQUESTS,
                "max_tokens": TOKENS,
                "telemetry": False,
            }
        },
        "experiments": experiments,
    }
    if design.cells > 1:
        several = list(range(4, 4 + design.cells))
        study["variants"] = {"base": {}, "cand": {"vary": {"--max-num-seqs": several}}}
    path = folder / f"{design.starts}-{design.aa}-{design.cells}.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    return plan.expand(config.load(path, {}, folder))


def measured(
    made: dict[str, Any], noise: Noise, effect: float, random: np.random.Generator
) -> Tables:
    """What this plan's launches would have given, one after the other."""
    order = made["launches"]
    drifts = noise.drifts(random, len(order))
    levels = {}
    starts = []
    for place, launch in enumerate(order):
        true = RATE * (1 + effect * (launch["variant"] in BETTER))
        levels[launch["digest"]] = true * math.exp(random.normal(0, noise.across) + drifts[place])
        starts.append(_start(launch, place))
    runs, requests = {}, {}
    for run in made["runs"]:
        rates = levels[run["launch"]] * np.exp(random.normal(0, noise.within, REQUESTS))
        rates[0] *= noise.first_request
        runs[run["name"]] = _run(run)
        requests[run["name"]] = [_request(run, float(rate)) for rate in rates]
    return Tables(runs, requests, starts)


def _start(launch: dict[str, Any], place: int) -> dict[str, Any]:
    return {
        **dict.fromkeys(COLUMNS["starts"]),
        "variant": launch["variant"],
        "server": launch["server"],
        "start": launch["start"],
        "start_id": launch["digest"],
        "status": "stopped",
        "t_begin_s": 600.0 * place,
        "source": "simulated",
    }


def _run(run: dict[str, Any]) -> dict[str, Any]:
    kept = ("variant", "workload", "scenario", "concurrency", "requests", "max_tokens", "start")
    return {
        **dict.fromkeys(COLUMNS["runs"]),
        **{name: run[name] for name in kept},
        "run": run["name"],
        "start_id": run["launch"],
        "source": "simulated",
        "validity": "valid",
        "n_attempted": REQUESTS,
        "n_ok": REQUESTS,
        "n_not_started": 0,
        "success_rate": 1.0,
    }


def _request(run: dict[str, Any], rate: float) -> dict[str, Any]:
    return {
        "run": run["name"],
        "outcome": "ok",
        "decode_rate": rate,
        "ttft_s": 0.8,
        "prompt_tokens": 40,
        "cached_tokens": 0,
        "completion_tokens": TOKENS,
        "n_events": TOKENS,
    }
