"""What the files of one device_probe.py say: each device's state, and whether a server may start.

In:  the probe's folder, what was asked, who is on the devices. Out: a finding.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from cargo import beside, procs
from cargo.device_use import id_of, variable_of, visible_ids
from cargo.start_rules import CLASSES

TAKEN_MIB = 1024.0  # of a card in use before anything of ours is on it
PHASES = 4  # of the probe, each with the deadline: import, count, devices, all-reduce
Before = List[Tuple[int, Dict[str, Any]]]  # (index, a check of an earlier call that still hangs)


class Asked(NamedTuple):
    """`devices`: indices as torch counts them (None: all); `choose`: any `need` of them will do."""

    mode: str
    devices: Optional[List[int]]
    need: int
    choose: bool
    deadline_s: float

    @classmethod
    def of(cls, order: Mapping[str, Any]) -> "Optional[Asked]":
        told = order.get("device_check")
        if not told or told["mode"] == "off" or (order.get("server") or {}).get("attach"):
            return None
        return cls(told["mode"], told["devices"], told["need"], told["choose"], told["deadline_s"])


def finding(state: str, found: str, **more: Any) -> Dict[str, Any]:
    """{"state": "ok"|"skipped"|"failed", "found": words, "torch", "devices": [{"device", "state":
    "ok"|"failed"|"hanging", "stage", "error", "pid", "name", "free_mib", "total_mib",
    "all_reduce_ms"}], "holders":
    [{"pid", "command", "nodes"}], "chosen": [indices] | None, "env": what the server is to see,
    "seconds"}.
    """
    empty: Dict[str, Any] = {
        "torch": None,
        "devices": [],
        "holders": [],
        "chosen": None,
        "env": {},
        "seconds": 0.0,
    }
    return dict(empty, state=state, found=found, **more)


def read(folder: str, name: str) -> List[Dict[str, Any]]:
    """Facts of a probe's file; a line that is being written is left out."""
    try:
        with open(os.path.join(folder, name + ".jsonl"), encoding="utf-8") as f:
            return [json.loads(line) for line in f.read().split("\n")[:-1]]
    except OSError:
        return []


def taken(devices: Iterable[Mapping[str, Any]], chosen: Optional[List[int]]) -> List[str]:
    """What was in use before anything of ours was there; of the chosen devices, if any are."""
    return [
        "device %s: %.1f of %.1f GiB is taken already"
        % (d["id"], (d["total_mib"] - d["free_mib"]) / 1024, d["total_mib"] / 1024)
        for d in devices
        if d["free_mib"] is not None and d["total_mib"] - d["free_mib"] > TAKEN_MIB
        if not chosen or d["device"] in chosen
    ]


def beside_foreign_memory(
    cause: Dict[str, Any], found: Optional[Mapping[str, Any]]
) -> Dict[str, Any]:
    """The cause of a failed start, in the light of the finding before it: where others held memory of
    its devices, a lack of memory proves nothing about the configuration.
    """
    text = str(cause.get("root_cause") or "")
    lacks = cause["class"] in ("gpu_oom", "kv_cache_no_room") or (
        cause["class"] == "context_too_long" and "KV cache" in text
    )
    full = taken(found["devices"], found["chosen"]) if lacks and found else []
    if not full:
        return cause
    known = CLASSES["gpu_memory_taken"]
    named = {"class": "gpu_memory_taken", "side": known.side, "confidence": "low"}
    said = "; ".join([text, "before the start " + full[0], *full[1:]])
    return dict(cause, root_cause=said, hint={"en": known.en, "zh": known.zh}, **named)


def last(facts: List[Dict[str, Any]], key: str) -> Any:
    return next((fact[key] for fact in reversed(facts) if key in fact), None)


class Result:
    """What the probe's files say."""

    def __init__(
        self,
        folder: str,
        asked: Asked,
        env: Mapping[str, str],
        holders: List[Dict[str, Any]],
        before: Before,
    ) -> None:
        self.folder, self.asked, self.holders = folder, asked, holders
        self.here = visible_ids(env)
        self.leader = read(folder, "leader")
        self.variable = variable_of(env) or last(self.leader, "variable")
        indices = last(self.leader, "devices") or []
        self.devices = [self._device(i) for i in indices]
        self.devices += [_still_hanging(i, told) for i, told in before]
        self.devices.sort(key=lambda device: int(device["device"]))
        self.hanging = self._hanging([i for i, _ in before])

    def _device(self, index: int) -> Dict[str, Any]:
        facts = read(self.folder, "device-%d" % index)
        state, stage, error = "ok", last(facts, "begin"), last(facts, "error")
        if error is not None:
            state = "failed"
        elif stage != last(facts, "passed") or stage is None:
            pid = last(facts, "pid")
            state = "hanging" if pid and procs.identify(pid) is not None else "failed"
            error = "no end of it" if state == "hanging" else "its process died there"
        return {
            "device": index,
            "id": id_of(index, self.here),
            "state": state,
            "stage": stage,
            "error": error,
            "pid": last(facts, "pid") if state == "hanging" else None,
            "name": last(facts, "name"),
            "free_mib": last(facts, "free_mib"),
            "total_mib": last(facts, "total_mib"),
            # of 8 KB, a token's hidden state; None: not made, or this make has no bfloat16
            "all_reduce_ms": last(facts, "all_reduce_ms"),
        }

    def _hanging(self, before: List[int]) -> List[Dict[str, Any]]:
        """Checks of this call that are left alone; device None: the host as a whole."""
        found = [
            {"device": d["id"], "stage": d["stage"], "pid": d["pid"]}
            for d in self.devices
            if d["state"] == "hanging" and d["device"] not in before
        ]
        pid = last(self.leader, "pid")  # the leader's, then that of its child which counts
        alive = pid is not None and procs.identify(pid) is not None
        ended = any("end" in line for line in self.leader)
        counted = last(self.leader, "count") is not None or not last(self.leader, "variable")
        if not found and alive and not (ended and counted):
            found = [{"device": None, "stage": last(self.leader, "begin"), "pid": pid}]
        return found

    # ------------------------------------------------------------------ the verdict
    def finding(self) -> Dict[str, Any]:
        state, found = self._verdict()
        chosen = last(self.leader, "chosen")
        enough = chosen is not None and len(chosen) == self.asked.need
        env: Dict[str, str] = {}
        if state == "ok" and self.asked.choose and enough:
            env = {self.variable: ",".join(id_of(i, self.here) for i in chosen)}
        return finding(
            state,
            found + self._taken(chosen),
            torch=last(self.leader, "torch"),
            devices=self.devices,
            holders=self.holders,
            chosen=chosen if enough else None,
            env=env,
        )

    def _verdict(self) -> Tuple[str, str]:
        count, need = last(self.leader, "count"), self.asked.need
        version = last(self.leader, "torch")
        if last(self.leader, "failed") == "import":
            return self._no_torch()
        if version is None or (count is None and last(self.leader, "variable")):
            return "failed", self._stopped_before_counting()
        if last(self.leader, "variable") is None:
            return self._none("torch %s is built for the CPU alone: there is no device" % version)
        if count == 0 and self.asked.devices is None and not self.asked.choose:
            return "skipped", "torch %s sees no device" % version
        bad = [_words(d) for d in self.devices if d["state"] != "ok"]
        good = len(self.devices) - len(bad)
        if not self.asked.choose and bad:
            return "failed", "; ".join(bad)
        if good < need:
            words = "%d of %d visible devices are fit, %d are needed" % (good, count, need)
            return "failed", "; ".join([words, *bad])
        chosen = last(self.leader, "chosen") or []
        broken = [_words(d) for d in self.devices if d["device"] in chosen and d["state"] != "ok"]
        if broken:
            return "failed", "; ".join(broken)
        names = ", ".join(dict.fromkeys(str(d["name"]) for d in self.devices if d["name"]))
        ids = ", ".join(id_of(i, self.here) for i in chosen)
        words = "devices %s of %d (%s) compute" % (ids, count, names)
        return "ok", "; ".join([words, *("left out: " + word for word in bad)])

    def _none(self, words: str) -> Tuple[str, str]:
        """There is nothing to check; a fault only where devices must be chosen."""
        return ("failed" if self.asked.choose else "skipped"), words

    def _no_torch(self) -> Tuple[str, str]:
        error = str(last(self.leader, "error"))
        if "No module named 'torch'" in error:
            return self._none("the server's python has no torch: nothing to check with")
        return "failed", "torch cannot be imported: %s" % error

    def _stopped_before_counting(self) -> str:
        stage, error = last(self.leader, "begin"), last(self.leader, "error")
        if error is not None:
            return "the devices cannot be counted: %s" % error
        if self.hanging:
            words = "no device can be asked: hanging at %s (pid %s, left alone)"
            return words % (stage, self.hanging[0]["pid"])
        said = beside.last_words(os.path.join(self.folder, "said")) or "it said nothing"
        return "the check itself died at %s: %s" % (stage, said)

    def _taken(self, chosen: Optional[List[int]]) -> str:
        """What is in use on the cards that the server is to get, and who has them open."""
        full = taken(self.devices, chosen if self.asked.choose else None)
        if not full:
            return ""
        who = [
            "pid %d (%s) has %s open" % (h["pid"], h["command"], ", ".join(h["nodes"]))
            for h in self.holders
        ]
        return "; ".join(["", *full, *(who or ["its holder is not visible from here"])])


def _still_hanging(index: int, told: Dict[str, Any]) -> Dict[str, Any]:
    unknown = dict.fromkeys(("free_mib", "total_mib", "name", "all_reduce_ms"))
    facts = dict(unknown, error="an earlier check hangs")
    return dict(
        facts,
        device=index,
        id=told["device"],
        state="hanging",
        stage=told["stage"],
        pid=told["pid"],
    )


def _words(device: Dict[str, Any]) -> str:
    left = " (pid %s, left alone)" % device["pid"] if device["pid"] else ""
    return "device %s: %s at %s: %s%s" % (
        device["id"],
        device["state"],
        device["stage"],
        device["error"],
        left,
    )
