"""Which process of a profiled server is which rank, and which engine calls it.

In: `Process`es of one run. Out: `Rank`s in order. A process is a rank once it ran a worker's steps
(or told a model); its number is its place in data, pipeline and tensor parallel order, and where no
process told it, its place by pid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decodelab import step_closure
from decodelab.step_lines import Process, Step


@dataclass(frozen=True)
class Rank:
    number: int
    process: Process
    steps: list[Step]  # of the worker, in order of time
    engine: step_closure.Engine | None  # None: nobody told its steps

    @property
    def group(self) -> tuple[int, int]:
        """The ranks of one (data, pipeline) place do the same work on the same steps."""
        model = self.process.model or {}
        return _place(model, "dp_rank"), _place(model, "pp_rank")


def ranks(processes: Sequence[Process], begin_ns: int | None = None) -> list[Rank]:
    """`begin_ns`: steps that began before are none of the run's own (warm-up)."""
    workers = [p for p in processes if p.model is not None or p.of("worker")]
    engines = [p for p in processes if p.of("engine")]
    numbers = [_number(p.model or {}) for p in workers]
    told = None not in numbers and len(set(numbers)) == len(numbers)
    workers.sort(key=lambda p: (_number(p.model or {}) or 0 if told else 0, p.pid or 0))
    out = []
    for n, process in enumerate(workers):
        number = _number(process.model or {}) if told else n
        steps = [s for s in process.of("worker") if begin_ns is None or s.t0 >= begin_ns]
        out.append(Rank(number or 0, process, steps, _engine_of(process, engines)))
    return out


def expected(found: Sequence[Rank]) -> int | None:
    """How many ranks there are by what the workers say; None: nobody says."""
    models = [rank.process.model for rank in found if rank.process.model]
    sizes = [m["tp_size"] * (m.get("pp_size") or 1) for m in models if m.get("tp_size")]
    if not sizes:
        return None
    replicas = {_place(model, "dp_rank") for model in models}
    return max(sizes) * len(replicas)


def _number(model: dict[str, Any]) -> int | None:
    if model.get("tp_rank") is None:
        return None
    tensor, pipe = model.get("tp_size") or 1, model.get("pp_size") or 1
    place = _place(model, "dp_rank") * pipe + _place(model, "pp_rank")
    return place * tensor + _place(model, "tp_rank")


def _place(model: dict[str, Any], name: str) -> int:
    value = model.get(name)
    return value if isinstance(value, int) else 0


def _engine_of(worker: Process, engines: Sequence[Process]) -> step_closure.Engine | None:
    """Its own process, else its parent, else the only engine there is."""
    same = [p for p in engines if p is worker]
    parent = [p for p in engines if p.pid is not None and p.pid == worker.ppid]
    found = next(iter(same or parent or (engines if len(engines) == 1 else [])), None)
    return None if found is None else step_closure.engine(found.of("engine"), found is worker)
