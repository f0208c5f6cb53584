"""Which accelerators of a host a run used, and how many should have been seen.

In: the plan's variant and host, the samples of each accelerator. Out: the keys of those in use and
by what they are known:

- env: the list of visible devices that the server is started with (indices, UUIDs or bus ids), of
  which the engine takes the first as many as its world size; a number is the index that the SMI tool
  prints while it shows every card. Two such lists that differ tell nothing
- devices: the host's list of indices in the config
- all: the engine needs as many as were seen, or more
- processes: the tool lists a process on exactly as many as the engine needs
- memory: exactly as many hold more than a tenth of their memory as the engine needs

World size is tensor x pipeline x data parallel size. Where none of it tells, and for a server that
was only attached to, None: whoever guesses here gives another's power to the run. (In a container the
list of processes is mostly empty, and then says nothing.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import flags
from decodelab.telemetry import Sample

VISIBLE = (
    "CUDA_VISIBLE_DEVICES",
    "ILUVATAR_COREX_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
MEMORY_SHARE = 0.10  # an idle card holds 1-2 % of its memory, an engine's weights alone far more
ByGpu = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True)
class Declared:
    """What config and command line say of a run's accelerators."""

    world: int | None = None  # processes of the engine, one an accelerator; None: not known
    visible: tuple[str, ...] = ()  # entries of the variant's device variable
    devices: tuple[int, ...] = ()  # the host's list of indices
    expected: int | None = None  # fewer seen are too few


@dataclass(frozen=True)
class InUse:
    keys: tuple[str, ...]
    by: str


def declared(
    plan: Mapping[str, Any], run: Mapping[str, Any], start: Mapping[str, Any] | None = None
) -> Declared:
    """Of the variant and the host of a planned run; `start`: the start.json of its server, which
    has the list that the device check chose (`devices: any`).
    """
    variant = (plan.get("variants") or {}).get(run["variant"]) or {}
    host = (plan.get("hosts") or {}).get(variant.get("host")) or {}
    chosen = ((start or {}).get("device_check") or {}).get("env") or {}
    env = {**(host.get("env") or {}), **(variant.get("env") or {}), **chosen}
    lists = {str(env[name]) for name in VISIBLE if env.get(name)} - {"all"}
    listed = lists.pop() if len(lists) == 1 else ""
    visible = tuple(entry.strip() for entry in listed.split(",") if entry.strip())
    given = host.get("devices")
    devices = tuple(given) if isinstance(given, list) else ()
    world = _world(variant)
    counts = [n for n in (world, len(devices), given) if isinstance(n, int)]
    return Declared(world, visible, devices, max(counts, default=0) or None)


def _world(variant: Mapping[str, Any]) -> int | None:
    """Of vLLM's flags; what another engine's mean, and how an attached server was started, is not
    known.
    """
    if variant.get("attach") or not str(variant.get("engine") or "").startswith("vllm"):
        return None
    told = variant.get("canonical") or {}
    sizes = [str(told.get(flag, 1)) for flag in flags.PARALLEL]
    return math.prod(map(int, sizes)) if all(size.isdigit() for size in sizes) else None


def in_use(by_gpu: ByGpu, wanted: Declared) -> InUse | None:
    """The accelerators of the run among those seen; None where it cannot be told."""
    if wanted.world is None or not by_gpu:
        return None
    named: list[tuple[str, Sequence[object]]] = [
        ("env", wanted.visible),
        ("devices", wanted.devices),
    ]
    for by, entries in named:
        if entries:
            chosen = [_named(by_gpu, str(entry)) for entry in entries[: wanted.world]]
            found = tuple(key for key in chosen if key is not None)
            return InUse(found, by) if found and len(found) == len(chosen) else None
    if wanted.world >= len(by_gpu):
        return InUse(tuple(by_gpu), "all")
    for by, witness in (("processes", _lists_processes), ("memory", _holds_memory)):
        busy = tuple(key for key, samples in by_gpu.items() if witness(samples))
        if len(busy) == wanted.world:
            return InUse(busy, by)
    return None


def too_few(by_gpu: ByGpu, wanted: Declared) -> bool:
    """Whether fewer accelerators were seen than config or command line declare."""
    return bool(by_gpu) and wanted.expected is not None and len(by_gpu) < wanted.expected


def _named(by_gpu: ByGpu, entry: str) -> str | None:
    """The key of the accelerator that an entry names: an index, or the beginning of a UUID."""
    if entry.isdigit():
        found = [key for key, index in indices(by_gpu).items() if str(index) == entry]
    else:
        found = [key for key, samples in by_gpu.items() if _begins(entry, samples)]
    return found[0] if len(found) == 1 else None


def _begins(entry: str, samples: Sequence[Sample]) -> bool:
    names = {name for s in samples for name in (s.reading.uuid, s.reading.bus) if name is not None}
    return any(name.lower().startswith(entry.lower()) for name in names)


def indices(by_gpu: ByGpu) -> dict[str, int | None]:
    """The index of each accelerator, from the calls that show the most of them: where a card is
    missing, the tool counts the others anew. None where it changed even there, or where it changed
    at all and no call shows every card.
    """
    shown: dict[int, set[str]] = {}
    for key, samples in by_gpu.items():
        for sample in samples:
            shown.setdefault(sample.record, set()).add(key)
    most = max(map(len, shown.values()), default=0)
    told = {
        key: {s.reading.gpu for s in samples if len(shown[s.record]) == most}
        for key, samples in by_gpu.items()
    }
    if most < len(by_gpu):
        told = {key: {s.reading.gpu for s in samples} for key, samples in by_gpu.items()}
        if any(len(found) > 1 for found in told.values()):
            return dict.fromkeys(by_gpu)
    return {key: next(iter(found)) if len(found) == 1 else None for key, found in told.items()}


def _lists_processes(samples: Sequence[Sample]) -> bool:
    return any(s.reading.processes for s in samples)


def _holds_memory(samples: Sequence[Sample]) -> bool:
    values = [s.reading.values for s in samples]
    pairs = [(v["mem_used_mib"], v["mem_total_mib"]) for v in values]
    return any(used is not None and total and used > MEMORY_SHARE * total for used, total in pairs)
