"""Who is on the accelerators of this machine, and which of them an environment lets a server see.

In:  /proc, /dev, the working folder, an environment. Out: device files, processes that have one
open, the names that a server's indices stand for, and health checks that never ended.
"""

from __future__ import annotations

import contextlib
import glob
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from cargo import procs, whole

# What the kernel shows of an accelerator: NVIDIA, Iluvatar, Ascend, AMD, MetaX, Cambricon, Moore
# Threads, Kunlun.
NODES = (
    "/dev/nvidia[0-9]*",
    "/dev/iluvatar[0-9]*",
    "/dev/davinci[0-9]*",
    "/dev/kfd",
    "/dev/mxcd*",
    "/dev/cambricon_dev*",
    "/dev/mtgpu*",
    "/dev/xpu[0-9]*",
)
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


def nodes() -> List[str]:
    return sorted(path for pattern in NODES for path in glob.glob(pattern))


def variable_of(env: Mapping[str, str]) -> Optional[str]:
    """The variable by which the environment restricts what the server sees, if it does."""
    return next((name for name in VISIBLE if env.get(name)), None)


def visible_ids(env: Mapping[str, str]) -> Optional[List[str]]:
    """The ids that the environment lets the server see, by its index; None: all, by number."""
    name = variable_of(env)
    return None if name is None else [word.strip() for word in env[name].split(",") if word.strip()]


def id_of(index: int, here: Optional[List[str]]) -> str:
    return str(index) if here is None or index >= len(here) else here[index]


def places(
    stuck: List[Dict[str, Any]], here: Optional[List[str]]
) -> List[Tuple[int, Dict[str, Any]]]:
    """Checks that hang, at the indices that their devices have in this environment."""
    out: List[Tuple[int, Dict[str, Any]]] = []
    for told in stuck:
        name = told["device"]
        if here is None:
            out += [(int(name), told)] if name.isdigit() else []
        else:
            out += [(i, told) for i, seen in enumerate(here) if _same(name, seen)]
    return out


def unplaced(stuck: List[Dict[str, Any]], here: Optional[List[str]]) -> List[Dict[str, Any]]:
    """Those whose device may be one of this environment's: it is named by number here, by id there."""
    seen = ["0"] if here is None else here
    return [told for told in stuck if any(told["device"].isdigit() != s.isdigit() for s in seen)]


def _same(one: str, two: str) -> bool:
    """Numbers, or ids of which a beginning is enough (`GPU-8f6e` for `GPU-8f6e3c…`)."""
    if one.isdigit() or two.isdigit():
        return one == two
    return one.startswith(two) or two.startswith(one)


def who_holds(but: List[int]) -> List[Dict[str, Any]]:
    """Processes that have an accelerator open, as far as /proc shows them to us."""
    wanted = set(nodes())
    out: List[Dict[str, Any]] = []
    for name in os.listdir("/proc") if wanted else []:
        if not name.isdigit() or int(name) in but:
            continue
        held = set()
        with contextlib.suppress(OSError):
            for fd in os.listdir("/proc/%s/fd" % name):
                with contextlib.suppress(OSError):
                    held.add(os.readlink("/proc/%s/fd/%s" % (name, fd)))
        if held & wanted:
            command = procs.describe(int(name))["command"]
            out.append({"pid": int(name), "command": command, "nodes": sorted(held & wanted)})
    return out


class Hung:
    """Checks that never ended, in the working folder: no second one is made beside them."""

    def __init__(self, root: str) -> None:
        self.path = os.path.join(root, "hanging_checks.json")

    def living(self) -> List[Dict[str, Any]]:
        told = (whole.read_json(self.path) or {}).get("checks") or []
        return [
            check
            for check in told
            if check["boot_id"] == procs.boot_id()
            and procs.alive(procs.Proc(check["pid"], check["start_time"]))
        ]

    def unsettled(self) -> List[Dict[str, Any]]:
        """Those that nobody waited for to their deadline."""
        return [told for told in self.living() if told.get("folder")]

    def add(self, checks: List[Dict[str, Any]]) -> None:
        self._write(self.living(), checks)

    def add_unsettled(self, pid: int, folder: str, env: Mapping[str, str]) -> None:
        """The leader of a check; its folder says later which of its processes hangs, and where."""
        seen = {name: env[name] for name in VISIBLE if env.get(name)}
        told = {"device": None, "stage": "a check that was stopped", "pid": pid}
        self._write(self.living(), [dict(told, folder=folder, seen=seen)])

    def replace(self, one: Dict[str, Any], checks: List[Dict[str, Any]]) -> None:
        self._write([told for told in self.living() if told != one], checks)

    def _write(self, kept: List[Dict[str, Any]], checks: List[Dict[str, Any]]) -> None:
        for one in checks:
            proc = procs.identify(one["pid"])
            if proc is not None:
                seen = {"start_time": proc.start_time, "boot_id": procs.boot_id()}
                kept.append(dict(one, **seen))
        whole.write_json(self.path, {"checks": kept})
