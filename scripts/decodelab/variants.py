"""Variants: what each server of a study is, after extends, remove and vary.

In: a filled config. Out: {name: Variant} in config order, a grid replaced by its cells; behind them the
unprofiled twins that the config does not name itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from decodelab import digest, flags, naming, twins
from decodelab.vocabulary import SIMULATOR_FOLDER

Config = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One server configuration, resolved; symbols such as {python} are still symbols."""

    name: str
    label: dict[str, str] | None
    extends: str | None
    grid: str | None
    cell: dict[str, Any] | None
    host: str | None
    devices: Any
    engine: str
    command: list[str]
    model: str | None
    build: str | None
    attach: str | None
    flags: dict[str, Any]  # as written (the last writer's spelling)
    removed: list[str]
    env: dict[str, str]
    fingerprint: dict[str, list[str]] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)  # of its start; no part of the digest
    profile: dict[str, Any] | None = (
        None  # what the step profiler does in it; None: it is not there
    )
    twin: str | None = None  # of a profiled one: the same without the profiler

    @property
    def argv(self) -> list[str]:
        if self.attach:
            return []
        return flags.argv(self.command, self.model, self.flags, self.engine)

    @property
    def served_model(self) -> str | None:
        """The name requests use: --served-model-name (its first) or the model."""
        given = flags.named(self.flags, self.engine).get("--served-model-name", self.model)
        return str(given[0] if isinstance(given, list) else given) if given is not None else None

    @property
    def server(self) -> str:
        return digest.server(
            {
                "command": self.command if not self.attach else None,
                "flags": flags.canonical(self.flags, self.engine),
                "env": self.env,
                "model": self.model,
                "engine": self.engine,
                "build": self.build,
                "host": self.host,
                "devices": self.devices,
                "attach": self.attach,
                # only where there is one, so that all others have the digest they always had
                **({"profile": self.profile} if self.profile else {}),
            }
        )

    @property
    def engine_key(self) -> str:
        return digest.engine(
            self.host, self.command if not self.attach else None, self.build, self.attach
        )


def chain(config: Config, name: str) -> list[str]:
    """A variant and what it extends, the base first. Stops at an unknown name or a cycle."""
    names: list[str] = []
    at: str | None = name
    while at is not None and at in config["variants"] and at not in names:
        names.append(at)
        at = config["variants"][at].get("extends")
    return names[::-1]


def resolve(config: Config) -> dict[str, Variant]:
    out: dict[str, Variant] = {}
    for name, entry in config["variants"].items():
        layers = [config["variants"][n] for n in chain(config, name)]
        if entry.get("vary"):
            for cell in cells(entry["vary"]):
                made = _build(config, name, [*layers, _cell_layer(cell)], cell)
                out[made.name] = made
        else:
            out[name] = _build(config, name, layers, None)
    return twins.named(out)


def grids(config: Config) -> dict[str, list[str]]:
    """Each grid's name -> the names of its cells; any other variant stands for itself."""
    out: dict[str, list[str]] = {}
    for variant in resolve(config).values():
        out.setdefault(variant.grid or variant.name, []).append(variant.name)
    return {name: out[name] for name in config["variants"]}  # a made-up twin is nobody's to name


def cells(vary: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The product, in config order: the last key turns fastest."""
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def _limits(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """The last word on each limit, and on each stage's."""
    said = [layer.get("limits") or {} for layer in layers]
    stages = {name: s for given in said for name, s in (given.get("stages") or {}).items()}
    merged = {name: value for given in said for name, value in given.items()}
    return {**merged, **({"stages": stages} if stages else {})}


def _profile(layers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The last word as a whole, in one spelling; `profile: null` is a word too."""
    said = next((layer["profile"] for layer in reversed(layers) if "profile" in layer), None)
    return None if said is None else {**said, "skip": sorted(set(said["skip"]))}


def _cell_layer(cell: dict[str, Any]) -> dict[str, Any]:
    return {
        "flags": {k: v for k, v in cell.items() if k.startswith("-")},
        "env": {k: v for k, v in cell.items() if not k.startswith("-")},
    }


def _build(
    config: Config, name: str, layers: list[dict[str, Any]], cell: dict[str, Any] | None
) -> Variant:
    server = config["server"]
    top = layers[-1] if cell is None else layers[-2]

    def last(key: str, start: Any) -> Any:
        """The value of the last layer that says one."""
        return next((layer[key] for layer in reversed(layers) if layer.get(key) is not None), start)

    engine = last("engine", server["engine"])
    host = last("host", config.get("host"))
    written, env, removed = fold(server, layers, engine)
    command = list(last("command", server.get("command") or []))
    return Variant(
        name=name
        if cell is None
        else naming.cell(name, {flags.name(k, engine): v for k, v in cell.items()}),
        label=top.get("label") if cell is None else None,
        extends=top.get("extends"),
        grid=name if cell is not None else None,
        cell=None if cell is None else {flags.name(k, engine): v for k, v in cell.items()},
        host=host,
        devices=config["hosts"].get(host, {}).get("devices"),
        engine=engine,
        command=command,
        model=last("model", server.get("model")),
        build=last("build", server.get("build")),
        attach=server.get("attach"),
        flags=written,
        removed=removed,
        env=env,
        fingerprint=server.get("fingerprint") or default_fingerprint(command, engine),
        limits=_limits(layers),
        profile=_profile(layers),
    )


def fold(
    server: dict[str, Any], layers: list[dict[str, Any]], engine: str
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Flags as written, env, and what was removed, after every layer over the base."""
    written = {flags.name(k, engine): (k, v) for k, v in server["flags"].items()}
    env = dict(server["env"])
    removed: list[str] = []
    for layer in layers:
        for item in layer.get("remove") or []:
            key = flags.name(item, engine) if item.startswith("-") else item
            written.pop(key, None) if item.startswith("-") else env.pop(key, None)
            removed.append(key)
        written.update(
            {flags.name(k, engine): (k, v) for k, v in (layer.get("flags") or {}).items()}
        )
        env.update(layer.get("env") or {})
        _choose_backend(layer.get("attention_backend"), written, env, engine)
    back = set(written) | set(env)
    return (
        dict(written.values()),
        {k: str(v) for k, v in env.items()},
        [r for r in removed if r not in back],
    )


def _choose_backend(
    name: str | None, written: dict[str, tuple[str, Any]], env: dict[str, str], engine: str
) -> None:
    """`attention_backend: NAME` in the engine's own spelling, in place of any other; auto: none."""
    if name is None:
        return
    for spelling in flags.BACKEND:
        written.pop(spelling, None)
        env.pop(spelling, None)
    spelled = flags.ERAS[engine].backend
    if spelled is None or name == "auto":
        return
    if spelled.startswith("-"):
        written[spelled] = (spelled, name)
    else:
        env[spelled] = name


def default_fingerprint(command: list[str], engine: str) -> dict[str, list[str]]:
    """What of the engine is fingerprinted on the host when the config does not say."""
    if "{simulator}" in command:
        return {"modules": [], "files": [SIMULATOR_FOLDER]}
    return {"modules": ["vllm"] if engine.startswith("vllm") else [], "files": []}
