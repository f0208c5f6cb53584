"""The smallest study that shows everything: two servers, three runs, one question, on the embedded
host.
"""

from __future__ import annotations

import copy
from typing import Any

_STUDY: dict[str, Any] = {
    "study": "small",
    "languages": ["en"],
    "host": "embedded",
    "hosts": {
        "embedded": {
            "transport": "local",
            "simulated": True,
            "devices": 4,
            "telemetry": {
                "tool": "ixsmi",
                "command": ["{this}", "-S", "-E", "{repo}/scripts/sim/ixsmi.py"],
                "interval_s": 0.2,
            },
            "env": {"SIM_STATE": "{repo}/.decodelab/embedded/sim.state"},
            "expect": {"start_s": 2, "output_tps": 250},
        }
    },
    "server": {
        "command": ["{python}", "{simulator}"],
        "model": "sim/Qwen3.6-35B-A3B",
        "build": "sim-1",
        "engine": "vllm-v0",
        "flags": {
            "-tp": 4,
            "--max-num-seqs": 2,
            "--max-model-len": 4096,
            "--reasoning-parser": "qwen3",
        },
    },
    "variants": {
        "parser": {},
        "noparser": {"remove": ["--reasoning-parser"]},
    },
    "workloads": {
        "one": {"prompt": "short", "concurrency": 1, "requests": 2, "max_tokens": 16},
        "two": {"prompt": "short", "concurrency": 2, "requests": 2, "max_tokens": 16},
    },
    "experiments": {
        "parser": {
            "runs": {"parser": ["one"], "noparser": ["one", "two"]},
            "question": {
                "kind": "compare_variants",
                "metric": "decode_rate",
                "workload": "one",
                "baseline": "parser",
                "candidate": "noparser",
                "smallest_effect": "5%",
            },
        }
    },
}


def study() -> dict[str, Any]:
    """A copy to edit."""
    return copy.deepcopy(_STUDY)
