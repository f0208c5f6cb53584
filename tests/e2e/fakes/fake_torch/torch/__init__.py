"""A torch whose devices fail or hang where a test says so: PYTHONPATH leads a real python here.

FAKE_TORCH is JSON: {"count", "built": "cuda"|"cpu", "fail": {device: stage}, "hang": {device:
stage}, "wrong": [devices], "taken_mib": {device: MiB}, "import": "fail"|"hang", "log": a file that
notes each device that is touched}. Stages: set_device, mem_get_info, ones, matmul, all_reduce; the
device "*" stands for device_count.
"""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace
from typing import Any

SAID: dict[str, Any] = json.loads(os.environ.get("FAKE_TORCH", "{}"))
COUNT = SAID.get("count", 4)
__version__ = "2.1.0+fake"
bfloat16 = "bfloat16"
version = SimpleNamespace(cuda="10.2" if SAID.get("built", "cuda") == "cuda" else None, hip=None)


def touch(index: int | str, stage: str) -> None:
    if SAID.get("log"):
        with open(SAID["log"], "a", encoding="ascii") as f:
            f.write(f"{index} {stage}\n")
    if (SAID.get("fail") or {}).get(str(index)) == stage:
        raise RuntimeError(f"CUDA error: unspecified launch failure ({stage})")
    while (SAID.get("hang") or {}).get(str(index)) == stage:
        time.sleep(0.05)


if SAID.get("import") == "fail":
    raise ImportError("libcudart.so.10.2: cannot open shared object file")
while SAID.get("import") == "hang":
    time.sleep(0.05)


class Tensor:
    def __init__(self, value: float, index: int, dtype: str | None = None) -> None:
        self.value, self.index, self.dtype = value, index, dtype

    def __getitem__(self, _: int) -> Tensor:
        return self

    def __mul__(self, other: float) -> Tensor:
        return Tensor(self.value * other, self.index)

    def item(self) -> float:
        return self.value


def device(name: str) -> int:
    return int(name.partition(":")[2])


def ones(shape: Any, device: int = -1, dtype: str | None = None) -> Tensor:
    if dtype is not None and SAID.get("no_bfloat16"):
        raise RuntimeError("bfloat16 is not supported")
    if device >= 0:
        touch(device, "ones")
    return Tensor(1.0, device, dtype)


def matmul(a: Tensor, _b: Tensor) -> Tensor:
    touch(a.index, "matmul")
    return Tensor(511.0 if a.index in (SAID.get("wrong") or []) else 512.0, a.index)


class Cuda:
    current = -1

    def device_count(self) -> int:
        touch("*", "device_count")
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        return COUNT if shown is None else min(COUNT, len([w for w in shown.split(",") if w]))

    def set_device(self, index: int) -> None:
        touch(index, "set_device")
        self.current = index

    def get_device_name(self, _index: int) -> str:
        return "Fake BI-V100"

    def mem_get_info(self, index: int) -> tuple[int, int]:
        touch(index, "mem_get_info")
        taken = 300 + (SAID.get("taken_mib") or {}).get(str(index), 0)
        return (32768 - taken) << 20, 32768 << 20

    def synchronize(self, _index: int) -> None:
        pass


cuda = Cuda()
