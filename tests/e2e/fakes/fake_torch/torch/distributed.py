"""The collectives of the fake torch: each rank leaves a file and waits for the others'."""

from __future__ import annotations

import glob
import time
from typing import Any

import torch

STATE: dict[str, Any] = {}


def init_process_group(
    backend: str, init_method: str, rank: int, world_size: int, timeout: Any
) -> None:
    STATE.update(place=init_method.removeprefix("file://"), rank=rank, world=world_size, turn=0)


def new_group(backend: str, timeout: Any) -> str:
    return backend


def all_reduce(tensor: torch.Tensor, group: str | None = None) -> None:
    if group is None:
        torch.touch(torch.cuda.current, "all_reduce")
    if tensor.dtype == "bfloat16":  # only timed: its result is nobody's
        return
    STATE["turn"] += 1
    stem = f"{STATE['place']}.{STATE['turn']}"
    with open(f"{stem}.{STATE['rank']}", "w", encoding="ascii") as f:
        f.write(str(tensor.value))
    while len(glob.glob(f"{stem}.*")) < STATE["world"]:
        time.sleep(0.01)
    tensor.value = float(sum(range(1, STATE["world"] + 1)))
