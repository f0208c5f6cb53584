"""Requested against effective: did what a variant asks for take effect in this start?

In: the plan's variant (flags, env) and a row of starts.csv. Out: reasons; none where the log does
not say. An engine starts happily with options that it ignores; a variant whose option did not take
effect measured nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from decodelab import reasons


def backend_asked(variant: Mapping[str, Any]) -> str | None:
    """The attention backend that the variant names, by flag or by environment."""
    flag = (variant.get("flags") or {}).get("--attention-backend")
    asked = flag or (variant.get("env") or {}).get("VLLM_ATTENTION_BACKEND")
    return str(asked) if asked else None


def differences(variant: Mapping[str, Any], start: Mapping[str, Any]) -> list[dict[str, str]]:
    """What was asked for and is not in effect, of one start."""
    name, asked, used = str(start["variant"]), backend_asked(variant), start.get("backend")
    out = []
    if asked and used and not same_backend(asked, str(used)):
        values = {"variant": name, "asked": asked, "used": used}
        out.append(reasons.reason("backend_not_in_effect", **values))
    for option in str(start.get("ignored") or "").split(";"):
        if option and option in asked_options(variant):
            out.append(reasons.reason("option_ignored", variant=name, option=option))
    return out


def asked_options(variant: Mapping[str, Any]) -> set[str]:
    """Names and values that the engine may say it ignores: environment variables, a backend."""
    asked = backend_asked(variant)
    return {*(variant.get("env") or {}), *([asked] if asked else [])}


def same_backend(asked: str, used: str) -> bool:
    """`FLASH_ATTN` and `Flash Attention` are one; `FLASH_ATTN_VLLM_V1` is too."""
    a, b = (re.sub(r"[^a-z]", "", x.lower()).replace("attention", "attn") for x in (asked, used))
    return a in b or b in a
