"""What a host's engine told of its attention backends: which could be chosen, and why not the others.

In:  results/<study>/backends/*.json (see backend_ask.py; the facts are those of
scripts/cargo/backend_probe.py) and the plan. Out: `Probe`s, and what of them the constraint table may
use. A name that the engine's files do not list is none of its backends; what nobody told is None.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodelab import constraints, digest, effective, flags
from decodelab.mistakes import did_you_mean

FOLDER = "backends"
SCHEMA = "decodelab.backends/1"
VARIABLE = flags.BACKEND_VARIABLE
YES, NO, NOT_TOLD = "yes", "no", "not_told"
# Whose version says something of a backend, by a part of its name; else the engine's own.
PACKAGES = (
    ("FLASHINFER", ("flashinfer-python", "flashinfer")),
    ("XFORMERS", ("xformers", "ixformer")),
    ("FLASH_ATTN", ("vllm-flash-attn", "flash-attn", "ixformer")),
    ("TRITON", ("triton",)),
    ("SDPA", ("torch",)),
)


@dataclass(frozen=True)
class Backend:
    name: str
    could: str  # yes, no, not_told
    why: str | None  # the engine's own words
    takes: str | None  # what would take effect when it is asked for
    version: str | None
    file: str | None


@dataclass(frozen=True)
class Probe:
    """One engine on one host."""

    key: str  # of the variants that it speaks for, see `key`
    host: str
    variants: tuple[str, ...]
    problem: str | None = None  # why nothing, or not all, was told
    version: str | None = None
    default: str | None = None  # what the engine takes when nothing is asked for
    packages: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[Backend, ...] = ()
    assumed: tuple[str, ...] = ()  # what stood in for an unknown of the model
    files: tuple[str, ...] = ()
    vendor: Mapping[str, list[str]] = field(default_factory=dict)
    multi_step: Mapping[str, list[str]] = field(default_factory=dict)
    refusals: frozenset[str] = frozenset()
    model: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None  # of the engine's package
    simulated: bool = False

    def backend(self, name: str) -> Backend | None:
        """The one that is asked for by this name. Case and `_VLLM_V1` count, as for the engine."""
        return next((one for one in self.backends if one.name == name), None)

    def place(self, file: str) -> str:
        """A file as it is called from where the engine is installed: vllm/attention/selector.py."""
        _, found, inside = file.rpartition("/site-packages/")
        root = (self.folder or "").rpartition("/")[0]
        if not found and root and file.startswith(f"{root}/"):
            inside = file[len(root) + 1 :]
        return inside or file

    def near(self, name: str) -> str | None:
        """A hint for a name that the engine does not list."""
        return did_you_mean(name, [one.name for one in self.backends])


def asked_of(variant: Mapping[str, Any]) -> str | None:
    """The backend that a variant of the plan asks for. The flag outranks the variable."""
    written = {**(variant.get("env") or {}), **(variant.get("canonical") or {})}
    given = next((written[name] for name in flags.BACKEND if written.get(name)), None)
    return None if given is None or str(given).lower() == "auto" else str(given)


def key(variant: Mapping[str, Any]) -> str | None:
    """What variants share whose engine answers alike, as a file name; None where nothing of ours is
    started.
    """
    if variant.get("attach") or not variant.get("host") or not variant.get("argv"):
        return None
    words = [str(word) for word in variant["argv"][:3]]
    told = {
        "host": variant["host"],
        "command": [word for word in words if not word.startswith("--")],
        "build": variant.get("build"),
        "model": variant.get("model"),
        "env": {k: v for k, v in (variant.get("env") or {}).items() if k != VARIABLE},
        "flags": told_flags(variant),
    }
    return f"{variant['host']}-{digest.of('backends', told)}"


def varied(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Experiments whose variants ask for different backends -> those variants, in plan order."""
    out = {}
    known = {n: v for n, v in (plan.get("variants") or {}).items() if not v.get("attach")}
    for name, experiment in (plan.get("experiments") or {}).items():
        members = [v for v in experiment.get("variants") or [] if v in known]
        if len({asked_of(known[v]) for v in members}) > 1:
            out[name] = members
    return out


# ---------------------------------------------------------------------- the kept answers
def load(folder: Path) -> list[Probe]:
    """Every answer that is kept, by file name; one that is not whole counts as absent."""
    out = []
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and record.get("schema") == SCHEMA:
            out.append(read(file.stem, record))
    return out


def read(key: str, record: Mapping[str, Any]) -> Probe:
    lines = [line for line in record.get("lines") or [] if isinstance(line, Mapping)]
    stages = {str(line["stage"]): line for line in lines if "stage" in line}
    files = stages.get("files") or {}
    packages = {str(k): str(v) for k, v in (files.get("packages") or {}).items()}
    places = {line["place"]: line.get("file") for line in lines if "place" in line}
    told = {line["backend"]: line for line in lines if "backend" in line}
    default = (told.pop("", None) or {}).get("takes")
    problems = [record.get("problem"), *(stage.get("problem") for stage in stages.values())]
    version = files.get("version")
    return Probe(
        key=key,
        host=str(record["host"]),
        variants=tuple(record.get("variants") or ()),
        problem=next((str(words) for words in problems if words), None),
        version=version,
        default=default,
        packages=packages,
        backends=tuple(
            _backend(name, told.get(name) or {}, places.get(name), packages, version)
            for name in files.get("names") or told
        ),
        assumed=tuple((stages.get("asking") or {}).get("assumed") or ()),
        files=tuple(files.get("files") or ()),
        vendor=files.get("vendor") or {},
        multi_step=files.get("multi_step") or {},
        refusals=frozenset(files.get("refusals") or ()),
        model=files.get("model") or {},
        folder=files.get("folder"),
        simulated=bool(record.get("simulated")),
    )


def _backend(
    name: str,
    line: Mapping[str, Any],
    file: str | None,
    packages: Mapping[str, str],
    engine: str | None,
) -> Backend:
    could = line.get("could") if line.get("could") in (YES, NO) else NOT_TOLD
    return Backend(
        name, str(could), line.get("why"), line.get("takes"), _version(name, packages, engine), file
    )


def _version(name: str, packages: Mapping[str, str], engine: str | None) -> str | None:
    for part, wanted in PACKAGES:
        if part in name:
            found = [f"{package} {packages[package]}" for package in wanted if package in packages]
            return ", ".join(found) or None
    return engine


# ---------------------------------------------------------------------- for the constraint table
def of(probes: Iterable[Probe], variant: Mapping[str, Any]) -> Probe | None:
    """The answer that speaks for a variant's engine."""
    return next((one for one in probes if one.key == key(variant)), None)


def facts(probes: Iterable[Probe], variant: Mapping[str, Any]) -> constraints.Facts:
    """What the probes say of this variant's engine; nothing where none asked it."""
    probe = of(probes, variant)
    if probe is None:
        return constraints.Facts()
    chunked = probe.multi_step.get("chunked")
    return constraints.Facts(
        version=_most_telling(probe),
        changed=bool(probe.vendor),
        backend=_in_effect(probe, variant),
        multi_step_backends=None if chunked is None else tuple(chunked),
        model=probe.model,
        refusals=probe.refusals,
    )


def _most_telling(probe: Probe) -> str | None:
    """The version with its local label: 0.32.0+cpu rather than 0.32.0."""
    known = [probe.version, probe.packages.get("vllm")]
    return max((one for one in known if one), key=len, default=None)


def _in_effect(probe: Probe, variant: Mapping[str, Any]) -> str | None:
    """The backend that this variant would run on, where the selector was asked with nothing assumed.
    From 0.8 on an engine of two generations may choose again, so nothing is said.
    """
    release = constraints.release_of(probe.version)
    if probe.assumed or release is None or release >= (0, 8, 0):
        return None
    asked = asked_of(variant)
    if asked is None:
        return probe.default
    found = probe.backend(asked)
    return None if found is None or found.could == NOT_TOLD else found.takes


def told_flags(variant: Mapping[str, Any]) -> dict[str, Any]:
    """What of a variant a selector looks at: data types and block size, as written."""
    canonical = flags.canonical(variant.get("flags") or {}, variant.get("engine") or "other")
    block = effective.size(canonical.get("--block-size", ""))
    return {
        "dtype": canonical.get("--dtype"),
        "kv_cache_dtype": canonical.get("--kv-cache-dtype") or "auto",
        "block_size": None if block is None else int(block),
    }
