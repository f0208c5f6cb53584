"""Requested against effective: did what a variant asks for take effect in this start?

In: the plan's variant (flags, env) and a row of starts.csv. Out: one `Option` for each flag and
variable asked for, and reasons for those that did not take effect. An engine starts happily with
options that it ignores; a variant whose option did not take effect measured nothing. Where the
start does not tell, nothing is concluded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from decodelab import flags, reasons

IN_EFFECT, DIFFERS, IGNORED, NOT_TOLD = "in_effect", "differs", "ignored", "not_told"
VERDICTS = (DIFFERS, IGNORED, NOT_TOLD, IN_EFFECT)
LOG = "log"
HIDDEN = "***"

# Flags and variables whose effect the engine tells under another name than their own.
TOLD_AS = {
    "--attention-config.backend": "attention_backend",
    "VLLM_ATTENTION_BACKEND": "attention_backend",
}
# The model loader's words and torch's names.
_DTYPES = {"half": "float16", "float": "float32", "fp8_e4m3": "fp8", "fp16": "float16"}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")
_UNITS = {
    "": 1,
    **{unit: 1000**n for n, unit in enumerate("kmg", 1)},
    **{unit: 1024**n for n, unit in enumerate("KMG", 1)},
}
# Whatever the engine makes of these is what was asked for.
_LEFT_TO_THE_ENGINE = {"auto", "none", "-1"}


@dataclass(frozen=True)
class Option:
    name: str  # as asked for: --flag or VARIABLE
    requested: str
    effective: str | None
    source: str | None  # who told
    verdict: str


# ---------------------------------------------------------------------- values
Comparison = Callable[[Any, Any], bool | None]  # (asked, told); None: they cannot be compared


def same_backend(asked: Any, told: Any) -> bool | None:
    """`FLASH_ATTN`, `Flash Attention` and `FLASH_ATTN_VLLM_V1` are one; a CPU's has two names."""
    a, b = (_backend(str(name)) for name in (asked, told))
    return None if {a, b} == {"cpu", "torchsdpa"} else a == b


def _backend(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower().replace("_vllm_v1", ""))
    plain = plain.replace("attention", "attn").removesuffix("attn")
    plain = re.sub(r"^rocm(?=aiter)", "", plain)
    return "aiterflash" if plain == "aiterfa" else plain


def same_dtype(asked: Any, told: Any) -> bool | None:
    a, b = (str(name).lower().removeprefix("torch.") for name in (asked, told))
    return _DTYPES.get(a, a) == _DTYPES.get(b, b)


def same_size(asked: Any, told: Any) -> bool | None:
    """8192, `8k` (8000) and `8K` (8192), as vLLM reads them."""
    a, b = size(asked), size(told)
    return None if a is None or b is None else a == b


def same_plain(asked: Any, told: Any) -> bool | None:
    """Two values of one kind; a text against a number says nothing."""
    for read in (switch, number):
        a, b = read(asked), read(told)
        if a is not None and b is not None:
            return a == b
        if (a is None) != (b is None):
            return None
    if not (isinstance(asked, str) and isinstance(told, str)) or asked[:1] in "{[":
        return None
    return asked.lower() == told.lower()


def switch(value: Any) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower())


def number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def size(value: Any) -> float | None:
    match = _SIZE.fullmatch(str(value).strip())
    return float(match.group(1)) * _UNITS[match.group(2)] if match else None


COMPARISONS: dict[str, Comparison] = {
    "attention_backend": same_backend,
    "dtype": same_dtype,
    "kv_cache_dtype": same_dtype,
    "max_model_len": same_size,
    "max_num_batched_tokens": same_size,
    "max_num_seqs": same_size,
}


# ---------------------------------------------------------------------- one start
def options(variant: Mapping[str, Any], start: Mapping[str, Any]) -> list[Option]:
    """Each flag and variable that the variant asks for, against what the start tells."""
    told = _told(start)
    ignored = {name for name in str(start.get("ignored") or "").split(";") if name}
    return [_option(name, asked, told, ignored) for name, asked in requested(variant)]


def _told(start: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Name -> [value, source]. The backend has a column of its own, read from dispatch lines."""
    told: dict[str, list[Any]] = json.loads(start.get("effective") or "{}")
    if start.get("backend"):
        told["attention_backend"] = [start["backend"], LOG]
    return told


def requested(variant: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    named = flags.named(variant.get("flags") or {}, variant.get("engine") or "other")
    yield from named.items()
    yield from (variant.get("env") or {}).items()


def _option(name: str, asked: Any, told: Mapping[str, list[Any]], ignored: Iterable[str]) -> Option:
    key = TOLD_AS.get(name) or (name[2:].replace("-", "_") if name.startswith("--") else name)
    value, source = told.get(key) or (None, None)  # a value of None with a source: none was chosen
    text = HIDDEN if flags.SECRET.search(name) else _text(asked)
    if name in ignored or (key == "attention_backend" and text in ignored):
        return Option(name, text, None if source is None else _text(value), source or LOG, IGNORED)
    if source is None:
        return Option(name, text, None, None, NOT_TOLD)
    return Option(name, text, _text(value), source, _verdict(key, asked, value))


def _verdict(key: str, asked: Any, told: Any) -> str:
    one = asked[0] if isinstance(asked, list) and len(asked) == 1 else asked
    if str(one).lower() in _LEFT_TO_THE_ENGINE:
        return IN_EFFECT
    if told is None:
        return DIFFERS
    if "{" in str(one):  # a structure, or a symbol that stands for a place on the host
        return NOT_TOLD
    same = COMPARISONS.get(key, same_plain)(one, told)
    return NOT_TOLD if same is None else IN_EFFECT if same else DIFFERS


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def differences(variant: Mapping[str, Any], start: Mapping[str, Any]) -> list[dict[str, str]]:
    """What was asked for and is not in effect, of one start."""
    name = str(start["variant"])
    return [
        _reason(name, option)
        for option in options(variant, start)
        if option.verdict in (DIFFERS, IGNORED)
    ]


def _reason(variant: str, option: Option) -> dict[str, str]:
    if option.verdict == IGNORED:
        return reasons.reason("option_ignored", variant=variant, option=option.name)
    if TOLD_AS.get(option.name, option.name) in ("attention_backend", "--attention-backend"):
        values = {"asked": option.requested, "used": option.effective}
        return reasons.reason("backend_not_in_effect", variant=variant, **values)
    values = {"asked": option.requested, "used": option.effective, "source": option.source}
    return reasons.reason("option_not_in_effect", variant=variant, option=option.name, **values)
