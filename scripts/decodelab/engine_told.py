"""What a start tells of the configuration that is in effect, each statement with its source.

In: a server's log (vLLM, V0 or V1), the arguments that it printed, and what start.json keeps of
/v1/models and of the info gauges of /metrics. Out: `Told`: by the name of an option, its value and
who said so. Only plain values (text, number, bool); what the start does not say is absent.

Where statements disagree: arguments are only what was parsed; models and gauges are the API
process's copy of the configuration; the engine's own lines, the config line and what it says that it
turns on or off, outrank both, the later one holds. A statement that may be cut short is not read.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cargo import start_cause
from decodelab import flags
from decodelab.request_lines import telling_lines

Plain = str | int | float | bool | None
ARGUMENTS, CONFIG, LOG = "arguments", "engine config", "log"
GAUGES, MODELS = "/metrics", "/v1/models"
LONGEST = 200  # characters of a value; what is longer is a structure of its own

# The engine's name in its config line or gauges -> the option's name, where they differ.
NAMES = {
    "max_seq_len": "max_model_len",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "device_config": "device",
    "cache_dtype": "kv_cache_dtype",
    "model_loader_load_format": "load_format",
}
# Parsing the argument says nothing about them: the engine chooses afterwards.
CHOSEN_LATER = frozenset({"attention_backend"})
# Gauges that hold the engine's resolution of other things under an option's name.
NOT_A_SETTING = frozenset({"num_gpu_blocks", "num_cpu_blocks", "engine", "model_name"})

_CONFIG = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v[^)]*\)(?: with config:|,)\s+(.+)")
_NON_DEFAULT = re.compile(r"non-default args: \{(.*)\}\s*$")
_NAMESPACE = re.compile(r"\bargs: Namespace\((.*)\)\s*$")
_KEYWORD = re.compile(r"(\w+)=")
_ITEM = re.compile(r"'(\w+)': ")
_ENUM = re.compile(r"<?[A-Z]\w*\.(\w+)(?:: [^>]*>)?")
_NUMBER = re.compile(r"[-+]?\d+|[-+]?\d*\.?\d+(?:e[-+]?\d+)?")
_WORDS = {"True": True, "False": False, "None": None}

_OFF = r"(?:\bdisabling (?:both|it)\b|\bis disabled\b)"  # said of what stands before it
# A line of the log -> (option, value); a value of None is the pattern's first group.
DISPATCH: tuple[tuple[re.Pattern[str], str, Plain], ...] = tuple(
    (re.compile(pattern), option, value)
    for pattern, option, value in (
        (r"[Cc]hunked prefill is enabled\b", "enable_chunked_prefill", True),
        (
            r"[Cc]hunked prefill is enabled with max_num_batched_tokens=(\d+)",
            "max_num_batched_tokens",
            None,
        ),
        (
            rf"[Cc]hunked prefill\b[^.]{{0,200}}?{_OFF}|\b[Dd]isabl(?:ing|ed) (?:V\d )?chunked prefill\b",
            "enable_chunked_prefill",
            False,
        ),
        (
            rf"[Pp]refix caching\b[^.]{{0,200}}?{_OFF}|\b[Dd]isabl(?:ing|ed) (?:automatic )?prefix caching\b",
            "enable_prefix_caching",
            False,
        ),
        (r"Enforce eager set\b", "enforce_eager", True),
        (r"(?i)CUDA ?graphs? (?:is|are) not supported .*eager mode", "enforce_eager", True),
        (r"(?i)\bfall(?:ing)? ?back to (?:the )?eager mode\b", "enforce_eager", True),
        (r"Graph capturing finished in\b", "enforce_eager", False),
        (r"Using max model len (\d+)", "max_model_len", None),
        (r"Initializing a V1 LLM engine\b", "VLLM_USE_V1", "1"),
        (r"Initializing a V0 LLM engine\b|Falling back to V0\b", "VLLM_USE_V1", "0"),
        (r"Multi-Step \(--num-scheduler-steps > 1\) is\b.*\bdisabled", "num_scheduler_steps", 1),
    )
)
# The engine's own words that it does not heed something. Tight, since they invalidate a question:
# "Ignoring X because --flag is set" speaks of X alone.
_NAME = r"(?<![\w-])[`'\"]?(--[a-z][\w-]{0,60}|[A-Z][A-Z0-9]{0,30}_[A-Z0-9_]{1,60})(?![\w-])[`'\"]?"
IGNORED = (
    re.compile(r"Unknown vLLM environment variable detected: (\w+)"),
    re.compile(r"Cannot use AttentionBackendEnum\.(\w+) backend"),
    re.compile(rf"\b[Ii]gnoring (?:the )?(?:flag |option |argument )?{_NAME}"),
    re.compile(
        rf"{_NAME} (?:flag |option |argument |environment variable )?(?:is deprecated and )?"
        r"(?:(?:is|are|will be|was) (?:being )?(?:silently )?ignored|has no effect)"
    ),
)
# Words of which every line that is read holds one: a log may hold a million requests.
_HINTS = ("llm engine", "args: ", "chunked prefill", "prefix caching", "eager", "graph", "max model len",
          "back to v0", "multi-step", "environment variable", "cannot use", "ignor", "no effect")  # fmt: skip


# Said of what would be; it may stand before any statement of the same sentence.
_CONDITION = re.compile(r"(?i)\b(?:if|when|whenever|unless|whether|in case)\b[^.;]*$")


class Said(NamedTuple):
    value: Plain
    source: str


@dataclass
class Told:
    values: dict[str, Said] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)  # flags, variables, values; as written

    def say(self, option: str, value: Plain, source: str) -> None:
        """None is a value in the config line only; elsewhere it says that nobody chose."""
        if (value is not None or source == CONFIG) and not flags.SECRET.search(option):
            self.values[NAMES.get(option, option)] = Said(value, source)

    def as_json(self) -> str | None:
        """{option: [value, source]}; None where nothing was told."""
        if not self.values:
            return None
        return json.dumps(dict(sorted(self.values.items())), ensure_ascii=False)


def read(log: str | None, start: Mapping[str, Any]) -> Told:
    """`start`: the start's start.json, or what is left of one."""
    told = Told()
    lines = _lines(log or "")
    for option, value in (pair for line in lines for pair in arguments(line)):
        if option not in CHOSEN_LATER:
            told.say(option, value, ARGUMENTS)
    for option, value in _model(start.get("models")):
        told.say(option, value, MODELS)
    for option, value in info(start.get("gauges")):
        told.say(option, value, GAUGES)
    for line in lines:
        _take(told, line)
    return told


def _lines(text: str) -> list[str]:
    """Whole lines that may tell something, until the server serves; one without its newline at the
    end is cut short.
    """
    out: list[str] = []
    for raw in text.split("\n")[:-1]:
        if start_cause.is_ready(raw):
            break
        out += [line.text for line in telling_lines(raw, _HINTS)]
    return out


def _take(told: Told, line: str) -> None:
    if match := _CONFIG.search(line):
        for option, value in pairs(match.group(1), _KEYWORD):
            told.say(option, value, CONFIG)
    for pattern, option, fixed in DISPATCH:
        if (match := _stated(pattern, line)) and not _of_a_draft(told, option):
            told.say(option, plain(match.group(1))[0] if fixed is None else fixed, LOG)
    for pattern in IGNORED:
        if (match := _stated(pattern, line)) and match.group(1) not in told.ignored:
            told.ignored.append(match.group(1))


def _stated(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    match = pattern.search(line)
    return None if match is None or _CONDITION.search(line[: match.start()]) else match


def _of_a_draft(told: Told, option: str) -> bool:
    """A draft model has a context of its own; that of the engine is the config line's."""
    said = told.values.get(option)
    return option == "max_model_len" and said is not None and said.source == CONFIG


def arguments(line: str) -> Iterator[tuple[str, Plain]]:
    """The arguments that a line prints; nothing for any other line."""
    if match := _NON_DEFAULT.search(line):
        yield from pairs(match.group(1) + ",", _ITEM)
    elif match := _NAMESPACE.search(line):
        yield from pairs(match.group(1) + ",", _KEYWORD)


def pairs(text: str, key: re.Pattern[str]) -> Iterator[tuple[str, Plain]]:
    """`a=1, b='x' c=D(e=2)`: names with plain values, brackets and quotes minded.

    V0 forgets a comma here and there. The last value counts only if it cannot be half of one.
    """
    at = key.match(text)
    while at is not None:
        end = _end(text, at.end(), key)
        value, is_plain = plain(text[at.end() : end])
        if is_plain and (end < len(text) or text[at.end() :] in _WORDS or text[-1] in "'\""):
            yield at.group(1), value
        if end < len(text) and text[end] == ")":
            return
        at = key.match(text, _next(text, end))


def _next(text: str, end: int) -> int:
    while end < len(text) and text[end] in ", ":
        end += 1
    return end


def _end(text: str, start: int, key: re.Pattern[str]) -> int:
    """Where the value ends: a comma, a space before the next name, a bracket that it never opened."""
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char in "'\"":
            at = _quoted(text, at)
            continue
        if char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return at
            depth -= 1
        elif depth == 0 and (char == "," or (char == " " and key.match(text, at + 1))):
            return at
        at += 1
    return len(text)


def _quoted(text: str, start: int) -> int:
    """One past the closing quote; the text's end where there is none."""
    at = start + 1
    while at < len(text) and text[at] != text[start]:
        at += 2 if text[at] == "\\" else 1
    return min(at + 1, len(text))


def plain(text: str) -> tuple[Plain, bool]:
    """A printed value, and whether it is one: structures and half a word are not."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text], True
    if _NUMBER.fullmatch(text):
        return _number(text)
    if text[:1] in ("'", '"'):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return None, False
        return value, isinstance(value, str) and len(value) <= LONGEST
    if text[:1] == "[":
        return _only_item(text)
    match = _ENUM.fullmatch(text)
    if match:
        return match.group(1), True
    return text, bool(re.fullmatch(r"[\w./:@+-]{1,200}", text))


def _number(text: str) -> tuple[Plain, bool]:
    if len(text) >= 40:
        return None, False
    value = float(text) if set(text) & set(".e") else int(text)
    return value, value not in (float("inf"), float("-inf"))


def _only_item(text: str) -> tuple[Plain, bool]:
    """`['tiny']` is the value of an option that may be given several."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None, False
    is_one = isinstance(value, list) and len(value) == 1
    found = value[0] if is_one else None
    return found, is_one and isinstance(found, str | int | float | bool)


def _model(models: Any) -> Iterator[tuple[str, Plain]]:
    """Of /v1/models the longest context that it allows: the base model comes first."""
    data = models.get("data") if isinstance(models, Mapping) else None
    for model in data if isinstance(data, list) else []:
        length = model.get("max_model_len") if isinstance(model, Mapping) else None
        if isinstance(length, int) and not isinstance(length, bool):
            yield "max_model_len", length
            return


def info(lines: Any) -> Iterator[tuple[str, Plain]]:
    """Labels of the info gauges, `vllm:cache_config_info{block_size="16",…} 1.0`."""
    for line in lines if isinstance(lines, list) else []:
        for name, text in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', str(line)):
            value, is_plain = plain(text)
            if is_plain and name not in NOT_A_SETTING and not name.startswith("_"):
                yield name, value
