"""What is known of a launch before it starts: that its engine refuses this configuration.

In:  a launch of a study (`with_ingredients`), the Store. Out: the cause in a start's shape and where
it is known from, or None. It is asked again each time, so what a host's engine has told meanwhile
counts at once. A server that ever came up outweighs every rule; a real refusal outweighs them too,
since it has a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodelab import backend_probe, constraints
from decodelab.store import Store

# Constraint -> the class of cause that its refusal has in a log; the others are of a bad argument.
CLASSES = {
    "multi_step_backend": "feature_not_supported_by_backend",
    "multi_step_chunked": "feature_not_supported_by_backend",
    "multi_step_chunked_pipeline": "feature_not_supported_by_backend",
    "multi_step_speculation": "feature_not_supported_by_backend",
    "heads_not_divisible": "bad_parallel_size",
    "weights_above_share": "kv_cache_no_room",
}


def with_ingredients(
    launch: Mapping[str, Any], plan: Mapping[str, Any], results: Path
) -> Mapping[str, Any]:
    """The launch with its variant and the folder of what the hosts' engines told."""
    entry = plan["variants"][launch["variant"]]
    return {**launch, "entry": entry, "told": results / backend_probe.FOLDER}


def refusal(launch: Mapping[str, Any], store: Store) -> dict[str, Any] | None:
    """{"cause", "known_from"} where the constraint table refuses the launch's server."""
    if "entry" not in launch or store.ever_ready(str(launch["server"])):
        return None
    facts = backend_probe.facts(backend_probe.load(launch["told"]), launch["entry"])
    found = constraints.known_impossible(launch["entry"], facts)
    if found is None:
        return None
    known = {"kind": "constraint", "name": found.code, "source": found.source}
    return {"cause": _cause(found), "known_from": known}


def _cause(found: constraints.Impossible) -> dict[str, Any]:
    ask = {
        "en": "Known beforehand, so not started; --config retry=NAME starts it all the same.",
        "zh": "事先已知，故未启动；--config retry=NAME 可强制启动。",
    }
    return {
        "class": CLASSES.get(found.code, "bad_argument"),
        "root_cause": found.text["en"],
        "line": None,
        "stage": None,
        "hint": ask,
        "side": "config",
        "confidence": "high",
    }
