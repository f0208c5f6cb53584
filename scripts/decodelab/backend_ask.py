"""Ask a host's engine for its attention backends, and keep the answer. Nothing is started.

In:  a Study and a Host. Out: results/<study>/backends/<host>-<digest>.json, one for each engine and
environment. The host's part is scripts/cargo/backend_check.py. An answer is asked for once before the
first start of an experiment that varies the backend or tries a grid, and anew by `snakemake probe`; a host that gives
none stops no launch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from decodelab import backend_probe, constraints, orders
from decodelab.agent_client import AgentClient
from decodelab.host import Host, HostError, HostLost, resolve
from decodelab.store import write_json
from decodelab.study import Study
from decodelab.vocabulary import SIMULATOR_PATH

IMPORT_S = 180.0  # the engine's own import, as check_hosts has it
DEADLINE_S = 30.0  # one backend
CALL_S = 900.0
TOLD, FAILED, BUSY = "told", "failed", "busy"
Record = dict[str, Any]


def groups(study: Study, variants: Iterable[str]) -> dict[str, list[str]]:
    """Key of an answer -> the variants for which it speaks, of these."""
    out: dict[str, list[str]] = {}
    for name in variants:
        key = backend_probe.key(study.plan["variants"][name])
        if key is not None:
            out.setdefault(key, []).append(name)
    return out


def missing(study: Study, launches: Iterable[str], root: Path) -> dict[str, list[str]]:
    """What must be asked before these launches start: for the engines of experiments that vary the
    backend, or try a grid, whose cells the constraint table may rule out.
    """
    started = {name for d in launches for name in study.launches[d]["variants"]}
    wanted: dict[str, None] = {}
    for members in [*backend_probe.varied(study.plan).values(), *_grids(study)]:
        if started & set(members):
            wanted |= dict.fromkeys(members)
    keys = groups(study, wanted)
    every = groups(study, study.plan["variants"])
    folder = root / study.results / backend_probe.FOLDER
    return {key: every[key] for key in keys if not (folder / f"{key}.json").is_file()}


def _grids(study: Study) -> list[list[str]]:
    return [grid["cells"] for grid in study.plan["grids"].values()]


def ask(study: Study, names: list[str], host: Host, client: AgentClient) -> Record:
    """One group's answer, as it is kept. Raises HostError if the host gives none."""
    variant = study.plan["variants"][names[0]]
    block = study.plan["hosts"][variant["host"]]
    symbols = host.symbols()
    env = {k: v for k, v in variant["env"].items() if k != backend_probe.VARIABLE}
    argv = [resolve(str(word), symbols) for word in variant["argv"]]
    simulator = next((word for word in argv if word.endswith(SIMULATOR_PATH)), None)
    question = {
        "workdir": host.workdir,
        "setup": orders.setup(block, host),
        "lock": None if block.get("simulated") else block.get("lock") or orders.HOST_LOCK,
        "argv0": argv[0],
        "env": orders.environment(symbols, block["env"], env),
        "asked": {
            "simulator": simulator,
            "model": variant["model"] and resolve(str(variant["model"]), symbols),
            **backend_probe.told_flags(variant),
            "words": {rule.code: rule.words for rule in constraints.RULES if rule.words},
            "import_s": IMPORT_S,
            "deadline_s": DEADLINE_S,
        },
    }
    command = [host.python, "-S", client.shipped("backend_check.py")]
    done = host.run(command, json.dumps(question).encode(), CALL_S)
    try:
        answer = json.loads(done.out)
        state = answer["state"]
    except (ValueError, KeyError, TypeError):
        words = (done.err or done.out).decode("utf-8", "replace").strip()[-1000:]
        raise HostError(
            f"host {host.name}: the probe of the attention backends answered with exit code "
            f"{done.exit_code}: {words}\n"
            f"Hint: try `{host.python} --version` there; Python 3.9 or newer is needed."
        ) from None
    return {
        "schema": backend_probe.SCHEMA,
        "host": variant["host"],
        "variants": names,
        "simulated": bool(block.get("simulated")),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **answer,
        "state": state,
    }


def keep(study: Study, key: str, record: Record, root: Path) -> bool:
    """Whether it is kept: a host in use is asked again another time."""
    if record["state"] == BUSY:
        return False
    write_json(root / study.results / backend_probe.FOLDER / f"{key}.json", record)
    return True


def before_start(study: Study, launches: Iterable[str], host: Host, root: Path) -> list[str]:
    """Ask what is still to be asked before these launches start. Returns what to say of it; raises
    HostLost only, since a launch needs no answer.
    """
    client, said = AgentClient(host), []
    for key, names in missing(study, launches, root).items():
        try:
            record = ask(study, names, host, client)
            keep(study, key, record, root)
        except HostLost:
            raise
        except HostError as error:
            said.append(f"the attention backends could not be asked for: {error}")
            continue
        said += summary(study, backend_probe.read(key, record))
    return said


def summary(study: Study, probe: backend_probe.Probe) -> list[str]:
    """A line on what could be chosen, and one for each name that is asked for in vain."""
    if not probe.backends:
        return [f"attention backends: not told ({probe.problem})"]
    could = [one.name for one in probe.backends if one.could == backend_probe.YES]
    lines = [f"attention backends that could be chosen: {', '.join(could) or 'none'}"]
    for name in probe.variants:
        asked = backend_probe.asked_of(study.plan["variants"][name])
        if asked is None:
            continue
        found = probe.backend(asked)
        if found is None:
            hint = probe.near(asked)
            lines.append(
                f"{name} asks for {asked}, which this engine does not list. {hint or ''}".rstrip()
            )
        elif found.could == backend_probe.NO:
            lines.append(
                f"{name} asks for {asked}, which cannot be chosen: {found.why or 'no reason told'}"
            )
    return lines
