"""Server flags as vLLM's command line has them: one canonical form per engine era, and argv.

In: the user's mapping ({-tp: 4, --enable-chunked-prefill: true}). Out: canonical mapping, argv.
A value is data: it reaches the server unchanged and never meets a shell.
true, false and absent are three things: false is spelled as the era wants it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Flags = dict[str, Any]


@dataclass(frozen=True)
class Era:
    """How one generation of an engine spells its command line."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    # Value = absent. Only defaults that hold in every version of the era: a default folded
    # wrongly would merge two servers, one not folded only costs a start.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # Flags that take a value False (argparse's StoreBoolean): `--flag False`.
    valued_booleans: frozenset[str] = frozenset()
    # False is said by `--no-flag` (BooleanOptionalAction). Without it False is the absent flag.
    negatable: bool = False
    # The flag or variable by which `attention_backend:` is said; None: the engine has no such thing.
    backend: str | None = None


# Every way to choose an attention backend; a flag outranks the variable.
BACKEND_VARIABLE = "VLLM_ATTENTION_BACKEND"
BACKEND = ("--attention-backend", "--attention-config.backend", BACKEND_VARIABLE)

# Their product is how many devices the engine spreads over.
PARALLEL = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")

_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
}
_COMMON_DEFAULTS = {
    "--tensor-parallel-size": 1,
    "--pipeline-parallel-size": 1,
    "--dtype": "auto",
    "--kv-cache-dtype": "auto",
    "--load-format": "auto",
}

ERAS: dict[str, Era] = {
    # vLLM 0.5.5 to 0.7: V0 engine.
    "vllm-v0": Era(
        aliases=_SHORT,
        defaults={**_COMMON_DEFAULTS, "--num-scheduler-steps": 1},
        # Absent is not False for these: V0 turns chunked prefill on by itself above 32K of context,
        # and the default of multi-step-stream-outputs changed with 0.6.3.
        valued_booleans=frozenset({"--enable-chunked-prefill", "--multi-step-stream-outputs"}),
        backend=BACKEND_VARIABLE,
    ),
    # vLLM from 0.8: V1 engine. Booleans are BooleanOptionalAction throughout.
    "vllm-v1": Era(
        aliases={
            **_SHORT,
            "-dp": "--data-parallel-size",
            "-dcp": "--decode-context-parallel-size",
            "-pcp": "--prefill-context-parallel-size",
            "-ep": "--enable-expert-parallel",
            "-ac": "--attention-config",
            "-cc": "--compilation-config",
            "-sc": "--speculative-config",
            "-n": "--nnodes",
            "-r": "--node-rank",
            "-asc": "--api-server-count",
        },
        defaults={
            **_COMMON_DEFAULTS,
            "--data-parallel-size": 1,
            "--enforce-eager": False,
            "--enable-auto-tool-choice": False,
            "--enable-prompt-tokens-details": False,
            "--enable-expert-parallel": False,
            "--trust-remote-code": False,
        },
        negatable=True,
        backend="--attention-backend",  # from 0.13; up to 0.14 the variable is heeded too
    ),
    # Any other OpenAI-compatible server: no aliases, no defaults, False is the absent flag.
    "other": Era(),
}

# What the launch itself decides or what must not be on a command line.
OWNED = {
    "--host": "the launch binds the server to loopback",
    "--port": "the launch chooses the port (hosts.<host>.port sets it)",
    "--model": "write it as `model:`",
    "--api-key": "a secret must not stand on a command line, where `ps` shows it",
}


# A flag or variable of such a name holds a secret: its value is shown and kept nowhere.
SECRET = re.compile(r"(?i)(api[-_]?key|token$|secret|passw|credential)")

# Flags under which one event of a stream may carry several tokens, of every engine and generation.
BURSTS = (
    "--num-scheduler-steps",
    "--multi-step-stream-outputs",
    "--stream-interval",
    "--num-speculative-tokens",
    "--diffusion-config",
)
_SPECULATION = ("--speculative-", "--spec-")
_ONE_BY_ONE = {"--num-scheduler-steps": "1", "--stream-interval": "1"}


def bursts(told: Mapping[str, Any]) -> Flags:
    """Of canonical flags, those that may put several tokens into one event."""
    out: Flags = {}
    for flag, given in told.items():
        plain = flag.partition(".")[0].replace(
            "_", "-"
        )  # --speculative-config.method: a part of it
        several = plain in BURSTS or plain.startswith(_SPECULATION)
        if several and _ONE_BY_ONE.get(plain) != str(given):
            out[flag] = given
    return out


def name(flag: str, engine: str) -> str:
    """Canonical name of a flag as written: alias resolved, `_` as `-` as vLLM's parser has it."""
    era = ERAS[engine]
    if flag in era.aliases:
        return era.aliases[flag]
    if engine != "other" and flag.startswith("--"):
        head, dot, rest = flag.partition(".")  # --hf-overrides.some_key: the key is data
        flag = head.replace("_", "-") + dot + rest
        if era.negatable and flag.startswith("--no-"):
            return "--" + flag[len("--no-") :]
    return flag


def is_negated(flag: str, engine: str) -> bool:
    return ERAS[engine].negatable and flag.replace("_", "-").startswith("--no-")


def value(flag: str, given: Any, engine: str) -> Any:
    """The value that a flag as written means under its canonical name."""
    if is_negated(flag, engine) and isinstance(given, bool):
        return not given
    if name(flag, engine) in ERAS[engine].valued_booleans and str(given).lower() in (
        "true",
        "false",
    ):
        return str(given).lower() == "true"  # the text "False" is what the parser itself reads
    return given


def named(flags: Mapping[str, Any], engine: str) -> Flags:
    """Flags under their canonical names; values untouched, order kept, nothing folded."""
    return {name(flag, engine): value(flag, given, engine) for flag, given in flags.items()}


def canonical(flags: Mapping[str, Any], engine: str) -> Flags:
    """What the server is told, once: defaults folded, every value as the text it becomes.

    Two mappings with one canonical form give one command line, so they are one server.
    """
    era = ERAS[engine]
    out: Flags = {}
    for flag, given in sorted(named(flags, engine).items()):
        if flag in era.defaults and _text(given) == _text(era.defaults[flag]):
            continue
        if given is False and not era.negatable and flag not in era.valued_booleans:
            continue  # a store_true flag that is off is a flag that is absent
        out[flag] = _text(given)
    return out


def argv(
    command: Iterable[str], model: str | None, flags: Mapping[str, Any], engine: str
) -> list[str]:
    """The whole command line, deterministic: command, --model, then the flags by name."""
    line = list(command)
    if model is not None:
        line += _valued("--model", model)
    for flag, given in canonical(flags, engine).items():
        line += _arguments(flag, given, engine)
    return line


def _arguments(flag: str, given: Any, engine: str) -> list[str]:
    era = ERAS[engine]
    if given is True:
        return [flag]
    if given is False:
        return [flag, "False"] if flag in era.valued_booleans else ["--no-" + flag[len("--") :]]
    if isinstance(given, list):
        return [flag, *given]
    return _valued(flag, given)


def _valued(flag: str, text: str) -> list[str]:
    # A value with a leading dash in a token of its own would be read as the next flag.
    return [f"{flag}={text}"] if text.startswith("-") and flag.startswith("--") else [flag, text]


def _text(given: Any) -> Any:
    """A value as the server sees it. Booleans stay: they are spelled by the era."""
    if isinstance(given, bool):
        return given
    if isinstance(given, list):
        return [item if isinstance(item, str) else str(item) for item in given]
    if isinstance(given, dict):
        return json.dumps(given, sort_keys=True, ensure_ascii=False)
    return str(given)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a mapping of flags; the config's checks add where it stands."""

    flag: str
    found: str
    allowed: str
    hint: str | None = None


def problems(flags: Mapping[str, Any], engine: str) -> list[Problem]:
    """Mistakes inside one mapping: two spellings of one flag, flags the launch owns, no value."""
    out: list[Problem] = []
    first: dict[str, str] = {}
    for flag, given in flags.items():
        key = name(flag, engine)
        if key in first:
            out.append(
                Problem(
                    flag,
                    f"{flag}, which is {key} again",
                    "each flag once",
                    f"keep {first[key]} or {flag}",
                )
            )
        first.setdefault(key, flag)
        if key in OWNED:
            out.append(Problem(flag, flag, "any flag but " + ", ".join(OWNED), OWNED[key]))
        out += _value_problems(flag, given, engine)
    return out


def _value_problems(flag: str, given: Any, engine: str) -> list[Problem]:
    negated = is_negated(flag, engine)
    if negated and given is not True:
        hint = f"write {name(flag, engine)}: {str(given is False).lower()}"
        return [Problem(flag, f"{flag}: {given}", f"{flag}: true", hint)]
    if isinstance(given, list):
        texts = [item for item in given if str(item).startswith("-")]
        if texts:
            return [
                Problem(flag, f"{texts[0]!r} in a list", "list items without a leading dash", None)
            ]
    if ERAS[engine].negatable and given is False and not re.match(r"^--[a-z]", name(flag, engine)):
        return [Problem(flag, f"{flag}: false", "false for a flag with a long name", None)]
    return []
