"""Opens a study's config file: reads, checks, fills in what is left out.

In: a YAML file, the control keys of this call, the checkout's root. Out: a new dict with every
default in it, or ConfigError with all mistakes at once. The file's own data is never changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from decodelab import meaning, mistakes, shape, yamlsource
from decodelab.mistakes import ConfigError, Mistake
from decodelab.shape import Place
from decodelab.yamlsource import Source

__all__ = ["LOCAL_HOSTS", "ConfigError", "complete", "fill", "load"]

LOCAL_HOSTS = Path("config/hosts.local.yaml")


def load(path: Path, overrides: Mapping[str, Any] | None, root: Path) -> dict[str, Any]:
    """The study, complete. `overrides` are the keys of `snakemake --config KEY=VALUE`."""
    source = yamlsource.read(path, _relative(path, root))
    local = (
        yamlsource.read(root / LOCAL_HOSTS, str(LOCAL_HOSTS))
        if (root / LOCAL_HOSTS).exists()
        else None
    )
    if not isinstance(source.data, dict):
        found = source.mistakes or [
            Mistake((), mistakes.shown(source.data), "a mapping of keys", place=source.name)
        ]
        raise ConfigError(found, source.name)
    given, place = _merged(source, local)
    own = given.get("control", {})
    if isinstance(own, dict):  # anything else is a mistake of shape
        given["control"] = {**own, **_control(path, overrides or {})}
    return complete(
        given, place, root, [*source.mistakes, *(local.mistakes if local else [])], source.name
    )


def complete(
    given: Mapping[str, Any],
    place: Place,
    root: Path,
    found: list[Mistake],
    name: str = "the config",
) -> dict[str, Any]:
    """The config as given, checked and filled in; `found` are the mistakes of reading it."""
    wrong = shape.mistakes_of(given, place)
    filled = fill(shape.without(given, wrong))
    whole = not found and not wrong
    every = sorted([*found, *wrong, *meaning.check(filled, given, root, place, whole)], key=_line)
    if every:
        raise ConfigError(every, name)
    return filled


def fill(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with every default, short forms written out, and control keys applied."""
    data = copy.deepcopy(dict(given))
    _write_out(data)
    shape.fill_defaults(data)
    control = data["control"]
    data["host"] = control.get("host") or data.get("host")
    if data.get("replay"):
        data["replay"]["raw_dir"] = control.get("raw_dir") or data.get("raw_dir")
        data["host"] = None
    for host in data["hosts"].values():
        host.setdefault("python", "{this}" if host["transport"] == "local" else "python3")
    return data


def _write_out(data: dict[str, Any]) -> None:
    """`telemetry: ixsmi` and `replay: FOLDER` are short for mappings; YAML 1.1 reads a bare on and
    off as true and false.
    """
    for load in (data.get("workloads") or {}).values():
        if isinstance(load, dict) and isinstance(load.get("thinking"), bool):
            load["thinking"] = "on" if load["thinking"] else "off"
    if isinstance(data.get("replay"), str):
        data["replay"] = {"folder": data["replay"]}
    blocks = [b for b in (data.get("hosts") or {}).values() if isinstance(b, dict)]
    for block in [*blocks, data.get("replay") or {}]:
        if isinstance(block.get("telemetry"), str):
            block["telemetry"] = {"tool": block["telemetry"]}
        elif "telemetry" not in block:
            block["telemetry"] = {"tool": "auto" if block is not data.get("replay") else "ixsmi"}


def _merged(source: Source, local: Source | None) -> tuple[dict[str, Any], Place]:
    """The file with the hosts of hosts.local.yaml, whose fields win, and where each key stands."""
    given = copy.deepcopy(source.data)
    here = local.data if local and isinstance(local.data, dict) else {}
    extra = here.get("hosts") if isinstance(here.get("hosts"), dict) else {}
    if extra and isinstance(given.get("hosts", {}), dict):
        hosts = given.setdefault("hosts", {})
        for name, block in extra.items():
            both = isinstance(block, dict) and isinstance(hosts.get(name), dict)
            hosts[name] = {**hosts[name], **block} if both else copy.deepcopy(block)
    for key in here:
        if key != "hosts":
            assert local is not None
            local.mistakes.append(
                Mistake((key,), f'"{key}"', "only hosts", None, local.place((key,)))
            )

    def place(path: mistakes.Path) -> str:
        if path[:1] == ("control",) and path[:2] not in source.lines:
            return "--config"
        if local is not None and path[:1] == ("hosts",) and path[:3] in local.lines:
            return local.place(path)
        return source.place(path)

    return given, place


def _control(path: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Control keys alone. With --configfile, Snakemake hands over the file's own keys as well."""
    if not overrides:
        return {}
    try:
        own = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        own = {}
    own = own if isinstance(own, dict) else {}
    said = {k: v for k, v in overrides.items() if k not in own or _plain(own[k]) != _plain(v)}
    return {k: _switch(k, v) for k, v in said.items()}


def _switch(key: str, value: Any) -> Any:
    """Snakemake hands `quick=true` over as the text "true"."""
    known = shape.schema()["$defs"]["control"]["properties"].get(key, {})
    if known.get("type") != "boolean" or not isinstance(value, str):
        return value
    return {"true": True, "false": False}.get(value.lower(), value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _line(mistake: Mistake) -> tuple[str, int]:
    """Mistakes in the order of the file; those of the call come last."""
    name, _, line = mistake.place.rpartition(":")
    return (name or "~", int(line)) if line.isdigit() else ("~", 0)


def _relative(path: Path, root: Path) -> str:
    resolved, base = path.resolve(), root.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else str(path)
