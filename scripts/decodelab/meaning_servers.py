"""Meaning of the server and its variants. In: a Check. Out: mistakes added to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from decodelab import flags, mistakes, naming, variants
from decodelab.meaning_hosts import secret_values, symbols

if TYPE_CHECKING:
    from decodelab.meaning import Check

TOKEN_STARTS = ("hf_", "sk_", "ghp_", "gho_", "glpat")
TOKEN_CHARACTERS = 24  # as long, of small and capital letters and digits: no name is like that


def check(todo: Check) -> None:
    _server(todo)
    for name in todo.config.get("variants") or {}:
        _variant(todo, name)
    _cell_names(todo)


def variant_names(todo: Check) -> list[str]:
    """What `runs:` and questions may name: variants, grids and the cells of grids."""
    return list(dict.fromkeys([*todo.names("variants"), *cells(todo)]))


def server_names(todo: Check) -> list[str]:
    """What is started under a name of its own: variants and cells, not grids."""
    grids = set(cells(todo).values())
    return [name for name in variant_names(todo) if name not in grids]


def cells(todo: Check) -> dict[str, str]:
    """Name of each grid cell -> its grid."""
    out = {}
    for name, entry in (todo.config.get("variants") or {}).items():
        engine = entry.get("engine") or todo.config["server"]["engine"]
        for cell in variants.cells(entry.get("vary") or {}) if entry.get("vary") else []:
            out[naming.cell(name, {flags.name(k, engine): v for k, v in cell.items()})] = name
    return out


# the base server


def _server(todo: Check) -> None:
    config, server = todo.config, todo.config["server"]
    attach = bool(server.get("attach"))
    words = ("python", "simulator", "repo")
    for n, word in enumerate(server.get("command") or []):
        symbols(todo, ("server", "command", n), word, words)
    symbols(todo, ("server", "model"), server.get("model"), words)
    for n, word in enumerate((server.get("fingerprint") or {}).get("files") or []):
        symbols(todo, ("server", "fingerprint", "files", n), word, words)
    if attach:
        for key in ("command", "flags", "env", "secrets"):
            if server.get(key):
                _attached(todo, ("server", key))
    elif not config.get("replay"):
        needed = ["command"] + (["model"] if server["engine"] != "other" else [])
        for key in needed:
            if key not in todo.names("server"):
                hint = "or attach, to measure a server that already runs"
                todo.add(("server", key), "nothing", f"{key}, which is required", hint)
    _flag_mapping(todo, ("server", "flags"), server["flags"], server["engine"])
    secret_values(todo, ("server", "env"), server["env"])
    for n, name in enumerate(server.get("secrets") or []):
        _secret_name(todo, ("server", "secrets", n), name)
    _secret_name(todo, ("server", "api_key"), server.get("api_key"))


def _secret_name(todo: Check, path: mistakes.Path, name: str | None) -> None:
    """A token can have the form of a name; standing here it would come into the plan."""
    mixed = len(name or "") >= TOKEN_CHARACTERS and all(
        re.search(kind, name or "") for kind in ("[a-z]", "[A-Z]", "[0-9]")
    )
    if name and (name.startswith(TOKEN_STARTS) or mixed):
        todo.add(
            path,
            "***, which looks like the secret itself",
            "the name of an environment variable",
            "only the name stands here, such as HF_TOKEN; its value comes from the environment"
            " of snakemake",
        )


def _attached(todo: Check, path: mistakes.Path) -> None:
    found = f"{path[-1]} beside server.attach"
    todo.add(
        path,
        found,
        "no command, flags, env or secrets: the server runs already and is only observed",
    )


def _flag_mapping(
    todo: Check, path: mistakes.Path, given: dict[str, Any] | None, engine: str
) -> None:
    for problem in flags.problems(given or {}, engine):
        todo.add((*path, problem.flag), problem.found, problem.allowed, problem.hint)


# variants


def _variant(todo: Check, name: str) -> None:
    entry = todo.config["variants"][name]
    path = ("variants", name)
    if todo.config["server"].get("attach"):
        for key in (
            "extends",
            "flags",
            "env",
            "attention_backend",
            "remove",
            "vary",
            "command",
            "model",
            "build",
            "engine",
            "host",
            "profile",
        ):
            if entry.get(key):
                _attached(todo, (*path, key))
        return
    for n, word in enumerate(entry.get("command") or []):
        symbols(todo, (*path, "command", n), word, ("python", "simulator", "repo"))
    secret_values(todo, (*path, "env"), entry.get("env"))
    secret_values(todo, (*path, "vary"), entry.get("vary"))
    whole = _lineage(todo, name, entry)
    engine = _engine(todo, name)
    _flag_mapping(todo, (*path, "flags"), entry.get("flags"), engine)
    _backend(todo, path, entry, engine)
    _vary(todo, path, entry, engine)
    _removed(todo, name, entry, engine, whole)


def _backend(todo: Check, path: mistakes.Path, entry: dict[str, Any], engine: str) -> None:
    """One choice of the attention backend in a variant. The name is the engine's matter: vendors add
    their own, and `snakemake probe` says which ones an engine lists.
    """
    chosen = entry.get("attention_backend")
    if chosen is None:
        return
    path = (*path, "attention_backend")
    if flags.ERAS[engine].backend is None:
        hint = "write the engine's own flag or variable"
        todo.add(path, f"{chosen}, for the engine {engine}", "a variant of a vLLM engine", hint)
    given = {**(entry.get("env") or {}), **flags.named(entry.get("flags") or {}, engine)}
    given |= {flags.name(key, engine): None for key in entry.get("vary") or {}}
    for spelling in flags.BACKEND:
        if spelling in given:
            todo.add(path, f"{chosen}, and {spelling} beside it", "the backend once", "keep one")


def _engine(todo: Check, name: str) -> str:
    layers = [todo.config["variants"][n] for n in variants.chain(todo.config, name)]
    said = [layer["engine"] for layer in layers if layer.get("engine")]
    return str(said[-1] if said else todo.config["server"]["engine"])


def _lineage(todo: Check, name: str, entry: dict[str, Any]) -> bool:
    """Whether everything the variant extends is there, down to the base."""
    path = ("variants", name, "extends")
    parent = entry.get("extends")
    if parent is None:
        return True
    if not todo.known(path, parent, todo.names("variants"), "unknown variant"):
        return False
    seen, at = [name], parent
    while at is not None and at in todo.config["variants"]:
        if todo.config["variants"][at].get("vary"):
            todo.add(
                path, f'"{at}", which is a grid', "a single variant", "extend what the grid extends"
            )
            return False
        if at in seen:
            todo.add(path, " extends ".join([*seen, at]), "no variant that extends itself")
            return False
        seen.append(at)
        at = todo.config["variants"][at].get("extends")
    return at is None


def _vary(todo: Check, path: mistakes.Path, entry: dict[str, Any], engine: str) -> None:
    vary = entry.get("vary") or {}
    _flag_mapping(
        todo, (*path, "vary"), {k: v[0] for k, v in vary.items() if k.startswith("-") and v}, engine
    )
    fixed = flags.named(entry.get("flags") or {}, engine) | (entry.get("env") or {})
    for key, values in vary.items():
        if (flags.name(key, engine) if key.startswith("-") else key) in fixed:
            todo.add(
                (*path, "vary", key),
                f"{key}, which this variant sets as well",
                "each name in one of the two",
            )
        seen: list[str] = []
        for n, value in enumerate(values):
            if str(value) in seen:
                todo.add(
                    (*path, "vary", key, n), f"{mistakes.shown(value)} again", "each value once"
                )
            seen.append(str(value))


def _removed(todo: Check, name: str, entry: dict[str, Any], engine: str, whole: bool) -> None:
    path = ("variants", name, "remove")
    own = flags.named(entry.get("flags") or {}, engine) | (entry.get("env") or {})
    own |= {
        flags.name(k, engine) if k.startswith("-") else k: None for k in entry.get("vary") or {}
    }
    base, env = _inherited(todo, name, engine)
    for n, item in enumerate(entry.get("remove") or []):
        if not isinstance(item, str):
            continue
        key = flags.name(item, engine) if item.startswith("-") else item
        known = list(base) if item.startswith("-") else list(env)
        if key in own:
            todo.add(
                (*path, n),
                f"{item}, which this variant also sets",
                "each name set or removed, not both",
            )
        elif whole and key not in known:
            hint = mistakes.did_you_mean(key, [*base, *env])
            todo.add(
                (*path, n),
                f"{item}, which is not there to remove",
                mistakes.listed([*base, *env]),
                hint,
            )


def _inherited(todo: Check, name: str, engine: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags (canonical) and env of what a variant starts from."""
    layers = [todo.config["variants"][n] for n in variants.chain(todo.config, name)[:-1]]
    written, env, _ = variants.fold(todo.config["server"], layers, engine)
    return flags.named(written, engine), env


def _cell_names(todo: Check) -> None:
    """Two cells, or a cell and a variant, of one name would be one set of files."""
    seen: dict[str, str] = {}
    for name, entry in (todo.config.get("variants") or {}).items():
        engine = entry.get("engine") or todo.config["server"]["engine"]
        for cell in variants.cells(entry["vary"]) if entry.get("vary") else []:
            made = naming.cell(name, {flags.name(k, engine): v for k, v in cell.items()})
            if made in seen or made in todo.config["variants"]:
                todo.add(
                    ("variants", name, "vary"),
                    f'two cells or variants named "{made}"',
                    "each name once",
                )
            seen[made] = name
