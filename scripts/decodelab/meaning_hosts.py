"""Meaning of host blocks. In: a Check. Out: mistakes added to it.

Every block is looked at by itself, also those of hosts.local.yaml that the study does not use; what
the servers need of a host is looked at only for the hosts that the study uses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from decodelab import mistakes, variants
from decodelab.vocabulary import SYMBOLS

if TYPE_CHECKING:
    from decodelab.meaning import Check

_SYMBOL = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile(r"(API_KEY|TOKEN|SECRET|PASSWORD)$")
_LOCAL_ONLY = ("this", "repo", "simulator")
_OF_SSH = ("ssh", "ssh_config")


def check(todo: Check) -> None:
    for name, block in todo.config["hosts"].items():
        _block(todo, name, block)
    if not todo.config.get("replay"):
        used = _used(todo)
        _mixture(todo, used)
        for name in used:
            if todo.config["hosts"][name].get("transport") == "ssh":
                _server_words(todo, name)


# one block


def _block(todo: Check, name: str, block: dict[str, Any]) -> None:
    path = ("hosts", name)
    symbols(todo, (*path, "python"), block.get("python"), ("this", "repo"))
    for key in ("workdir", "setup"):
        symbols(todo, (*path, key), block.get(key), ("repo",))
    for n, word in enumerate((block.get("telemetry") or {}).get("command") or []):
        symbols(todo, (*path, "telemetry", "command", n), word, tuple(SYMBOLS))
    secret_values(todo, (*path, "env"), block.get("env"))
    if block.get("devices") == "any" and block.get("device_check") is False:
        todo.add(
            (*path, "device_check"),
            "false beside devices: any",
            "true, or nothing: only the check knows which devices are healthy",
            "or name the devices",
        )
    if block.get("transport") == "ssh":
        _over_ssh(todo, name, block)
    else:
        _local(todo, path, block)


def _over_ssh(todo: Check, name: str, block: dict[str, Any]) -> None:
    path = ("hosts", name)
    for key, example in (
        ("ssh", "an alias of ~/.ssh/config"),
        ("workdir", "an absolute folder on the host"),
    ):
        if not block.get(key) and not todo.names("hosts", name).count(key):
            todo.add((*path, key), "nothing", f"{example}, since transport is ssh")
    for key, kind in (("workdir", "folder"), ("setup", "path"), ("lock", "path")):
        given = block.get(key)
        # A symbol is a mistake of its own, below.
        if given and not str(given).startswith(("/", "{")):
            todo.add((*path, key), mistakes.shown(given), f"an absolute {kind} on the host")
    for key in ("python", "workdir", "setup", "lock"):
        _here(todo, (*path, key), block.get(key), name)
    for n, word in enumerate((block.get("telemetry") or {}).get("command") or []):
        _here(todo, (*path, "telemetry", "command", n), word, name)
    for variable, value in (block.get("env") or {}).items():
        _here(todo, (*path, "env", variable), value, name)


def _local(todo: Check, path: mistakes.Path, block: dict[str, Any]) -> None:
    for key in _OF_SSH:
        if block.get(key):
            todo.add(
                (*path, key),
                f"{key} beside transport: local",
                "ssh keys only with transport: ssh",
                "add transport: ssh",
            )
    if block.get("setup") and not str(block["setup"]).startswith(("/", "{repo}/")):
        todo.add((*path, "setup"), mistakes.shown(block["setup"]), "an absolute path, or {repo}/…")
    if block.get("lock") and not str(block["lock"]).startswith("/"):
        todo.add((*path, "lock"), mistakes.shown(block["lock"]), "an absolute path")


def secret_values(todo: Check, path: mistakes.Path, env: dict[str, Any] | None) -> None:
    """A value that must not stand in a config, by its name or since the study calls it a secret."""
    server = todo.config["server"]
    named = [*(server.get("secrets") or []), *filter(None, [server.get("api_key")])]
    for name in env or {}:
        if name in named or _SECRET.search(name):
            todo.add(
                (*path, name),
                f"a value for {name}",
                "no secret in a config, a plan or a report",
                "take it out here; its value comes from the environment of snakemake"
                if name in named
                else "name it under server.secrets; its value then comes from the environment of snakemake",
            )


# what the study uses


def _used(todo: Check) -> list[str]:
    """The hosts that the study and its variants name and that are well enough to look at."""
    config = todo.config
    named: list[tuple[mistakes.Path, Any]] = [
        (("control", "host") if config["control"].get("host") else ("host",), config.get("host"))
    ]
    named += [
        (("variants", variant, "host"), entry["host"])
        for variant, entry in (config.get("variants") or {}).items()
        if entry.get("host")
    ]
    for path, name in named:
        _exists(todo, path, name)
    return list(dict.fromkeys(str(name) for _, name in named if name in config["hosts"]))


def _exists(todo: Check, path: mistakes.Path, name: Any) -> None:
    known = todo.names("hosts")
    if name is None:
        if "host" not in todo.given:
            todo.add(
                path, "nothing", f"a host: {mistakes.listed(known)}", "or replay, for raw logs"
            )
    elif name not in known:
        describe = "describe it in config/hosts.local.yaml, as in config/hosts.local.example.yaml"
        close = mistakes.did_you_mean(name, known)
        todo.add(path, f'unknown host "{name}"', mistakes.listed(known), close or describe)


def _mixture(todo: Check, used: list[str]) -> None:
    kinds = {name: bool(todo.config["hosts"][name].get("simulated")) for name in sorted(used)}
    if len(set(kinds.values())) > 1:
        found = ", ".join(
            f"{name} {'simulated' if simulated else 'measured'}"
            for name, simulated in kinds.items()
        )
        todo.add(
            ("host",),
            f"hosts of both kinds: {found}",
            "only simulated hosts, or only measured ones, in one study",
        )


def _server_words(todo: Check, host: str) -> None:
    """What is told to the servers that run on this ssh host: no path of this machine."""
    config, server = todo.config, todo.config["server"]
    _words(todo, ("server",), server, host)
    for n, word in enumerate((server.get("fingerprint") or {}).get("files") or []):
        _here(todo, ("server", "fingerprint", "files", n), word, host)
    for name, entry in (config.get("variants") or {}).items():
        layers = [config["variants"][n] for n in variants.chain(config, name)]
        homes = [layer["host"] for layer in layers if layer.get("host")]
        if (homes[-1] if homes else config.get("host")) == host:
            _words(todo, ("variants", name), entry, host)


def _words(todo: Check, path: mistakes.Path, entry: dict[str, Any], host: str) -> None:
    for n, word in enumerate(entry.get("command") or []):
        _here(todo, (*path, "command", n), word, host)
    _here(todo, (*path, "model"), entry.get("model"), host)
    for key in ("flags", "env"):
        for name, value in (entry.get(key) or {}).items():
            _here(todo, (*path, key, name), value if isinstance(value, str) else None, host)


def _here(todo: Check, path: mistakes.Path, text: Any, host: str) -> None:
    """Symbols that mean a path of this machine are of no use on another one."""
    for symbol in _SYMBOL.findall(str(text or "")):
        if symbol in _LOCAL_ONLY:
            allowed = (
                "{python}, or a path on the host"
                if path[-1] != "python"
                else "a program on the host"
            )
            todo.add(
                path, f"{{{symbol}}} is {SYMBOLS[symbol]}, but {host} is reached over ssh", allowed
            )


def symbols(todo: Check, path: mistakes.Path, text: Any, allowed: tuple[str, ...]) -> None:
    for symbol in _SYMBOL.findall(text if isinstance(text, str) else ""):
        if symbol not in allowed:
            names = ", ".join(f"{{{s}}}" for s in allowed)
            close = mistakes.did_you_mean(symbol, allowed)
            todo.add(
                path,
                f"unknown symbol {{{symbol}}}",
                names,
                close and re.sub(r'"(.*)"', r'"{\1}"', close),
            )
