"""How far a starting server is, and whether it takes too long.

In:  its log lines, what the HTTP side sees, times since the spawn (no clock here). Out: the stage
that it works on, what each stage took, and words for a limit that is passed.

A stage is work in progress: it begins with the line (or answer) of its row and lasts until a later
one begins. The table never goes backwards, whatever a slower rank or a restart says; the stage at
work (limits, causes) is that of the slowest known process. A stage's default limit ends a start only
after that long without progress in the log, and only where the log has named a stage of ours; a
limit that a person wrote holds for the stage's whole duration.
"""

# ruff: noqa: E501  (one stage a row: the table is read as a table)

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from cargo.start_ranks import Ranks

# What profiling takes grows with the context: BI-V100, Qwen3.6-35B-A3B, TP4: ready after 80 s at
# 100K, 387 s of silent profiling alone at 262K. Limits hold up to this context; a longer one
# stretches those of `scaled` stages, and of silence in them, in proportion: x 4 at 262,144.
CONTEXT_TOKENS = 65_536


class Stage(NamedTuple):
    name: str
    words: str
    limit_s: float  # default
    scaled: bool  # by the context length
    begins: Optional[str]  # the log line; None: seen otherwise


STAGES: Tuple[Stage, ...] = (
    Stage("imports", "Python imports", 300, False, r"Automatically detected platform|Triton (?:is )?(?:not )?installed"),  # from the spawn
    Stage("engine_init", "engine init", 600, False,
          r"vLLM API server version|version \d+\.\d+\.\d+\S*\s*$|\bargs: Namespace|non-default args|Resolved architecture: "
          r"|Initializing an? (?:V1 )?LLM engine|Worker ready; awaiting|init_device|\[BI100 startup\]|Waiting for init message"),
    Stage("weights", "loading weights", 1800, False,
          r"Starting to load model|Loading (?:safetensors|pt|bin|gguf) checkpoint|Loading safetensors"),
    Stage("kv_cache", "memory profiling and KV cache", 300, True,
          r"Loading (?:model )?weights took|Model loading took|Memory profiling|Dynamo bytecode|torch\.compile takes|Compiling a graph"
          r"|# \w+ blocks: |KV cache size: |Maximum concurrency for|KV cache memory|Available KV cache"),
    Stage("graph_capture", "graph capture", 600, False, r"[Cc]apturing (?:the model for )?(?:CUDA|cuda|ACL) ?[Gg]raph"),
    Stage("listening", "opening the port", 120, False,
          r"Graph capturing finished|init engine \(profile|Starting vLLM (?:API )?server|Available routes are|Started server process"
          r"|Waiting for application startup|Application startup complete|Uvicorn running on"),
    Stage("health", "waiting for /health", 120, False, None),  # from the first of its ports that is open
    Stage("probe", "waiting for the first token", 60, False, None),  # from /health's 200
)  # fmt: skip
NAMES = tuple(stage.name for stage in STAGES)
WORDS = {stage.name: stage.words for stage in STAGES}
# The limits that a config may set; the probe has a key of its own, probe_s.
LIMITED = tuple(name for name in NAMES if name != "probe")

_BEGINS = [(i, re.compile(s.begins)) for i, s in enumerate(STAGES) if s.begins is not None][::-1]
# Words of which every line that begins a stage holds one: a flood must not keep its reader busy.
_HINTS = ("platform", "Triton", "version", "Namespace", "non-default", "architecture", "LLM engine", "Worker ready", "init",
          "BI100", "oad", "rofiling", "bytecode", "ompil", "blocks: ", "KV cache", "concurrency", "aptur", "vLLM", "routes", "server process",
          "startup", "Uvicorn")  # fmt: skip
# What is in effect, by V1 and by V0; a flag only asks for it.
_CONTEXT = re.compile(r"Using max model len (\d+)|\bmax_(?:seq|model)_len=(\d+)")
# A new attempt begins: a supervisor restarts the server into the same log.
_BANNER = re.compile(r"vLLM API server version")
# Lines that come while nothing moves: our own polls in the access log, and waits that repeat.
_NO_PROGRESS = re.compile(r'"(?:GET|POST|HEAD) /\S* HTTP/1|Waiting for \d+ local')
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MAX_LINE = 20_000  # characters; the rest of a longer line is a dump
_SHOWN = 300


def stage_of(line: str) -> Optional[str]:
    """The furthest stage that this log line says has begun, or None."""
    found = _index_of(line)
    return None if found is None else NAMES[found]


def _index_of(line: str) -> Optional[int]:
    text = line[:_MAX_LINE]
    if not any(hint in text for hint in _HINTS):
        return None
    return next((i for i, pattern in _BEGINS if pattern.search(text)), None)


def context_of(line: str) -> Optional[int]:
    """The context length, in tokens, that this log line says is in effect."""
    found = _CONTEXT.search(line[:_MAX_LINE]) if "max" in line else None
    return int((found.group(1) or found.group(2))[:18]) if found else None


def tokens_asked(text: Any) -> Optional[int]:
    """Of `--max-model-len`: 262144, `256K` (262,144) and `256k` (256,000), as vLLM reads them; None
    for what is left to the engine (`auto`, -1).
    """
    found = _TOKENS.fullmatch(str(text or "").strip())
    return int(float(found.group(1)) * _UNITS[found.group(2)]) if found else None


def scale(context: Optional[int]) -> float:
    """What the limits of scaled stages are multiplied by; 1 for a context that is not known."""
    return max(1.0, (context or 0) / CONTEXT_TOKENS)


def longer_s(context: Optional[int], given: Mapping[str, float]) -> float:
    """Seconds that a context adds to the whole start; stages with a limit of their own add none."""
    return sum(
        (scale(context) - 1) * stage.limit_s
        for stage in STAGES
        if stage.scaled and stage.name not in given
    )


class StageWatch:
    """One start. Times are seconds since the spawn.

    `limits`: start_s (with what the asked context adds to it), silence_s, probe_s and, under
    "stages", limits of single stages (as given: what a person writes is not scaled); `context`: what
    was asked for, until the log says.
    """

    def __init__(self, limits: Mapping[str, Any], context: Optional[int] = None) -> None:
        self.limits, self.context = limits, context
        self.given: Mapping[str, float] = limits.get("stages") or {}
        self.asked, self.told = context, 0
        self.at = 0  # the furthest
        self.begun: List[Tuple[int, float]] = [(0, 0.0)]
        self.attempt = 0  # the furthest since the log's last banner
        self.ranks = Ranks()
        self.work, self.since_s = 0, 0.0  # the stage at work
        self.moved_s = 0.0  # when the log last showed progress
        self.understood = False  # the log has named a stage of ours
        self.last_line = ""
        self._passed_on_s = 0.0

    @property
    def stage(self) -> str:
        """The furthest that has begun."""
        return NAMES[self.at]

    @property
    def working(self) -> str:
        """That of the slowest known process, and of the last attempt."""
        return NAMES[self.work]

    def line(self, text: str, t_s: float) -> bool:
        """Take in a log line; whether a new stage begins."""
        if text.strip():
            self.last_line = text
            self._moves(text, t_s)
        self._tells_context(text)
        found = _index_of(text)
        if found is None:
            return False
        self.understood = True
        if _BANNER.search(text[:_MAX_LINE]):
            self.attempt = found
            self.ranks.restart()
        self.attempt = max(self.attempt, found)
        self.ranks.told(text, found)
        begins = self._go(found, t_s)
        self._works(t_s)
        return begins

    def unfinished(self, text: str, t_s: float) -> bool:
        """Take in what has grown behind the last line's end: a progress bar, or a log without line
        ends; whether a new stage begins.
        """
        tail = text[-_MAX_LINE:]
        self._moves(tail[tail.rstrip("\r").rfind("\r") + 1 :], t_s)
        self._tells_context(tail.rstrip("0123456789"))  # a number may be cut
        found = _index_of(tail)
        if found is None:
            return False
        self.understood = True
        begins = self._go(found, t_s)
        if begins:
            self.attempt = found
            self._works(t_s)
        return begins

    def reach(self, name: str, t_s: float) -> bool:
        """Something else than the log shows that this stage has begun."""
        begins = self._go(NAMES.index(name), t_s)
        if begins:
            self.attempt, self.moved_s = self.at, t_s
            self.ranks.restart()
            self._works(t_s)
        return begins

    def _moves(self, text: str, t_s: float) -> None:
        repeats = ("HTTP/1" in text or "Waiting" in text) and _NO_PROGRESS.search(text[:_MAX_LINE])
        if not repeats:
            self.moved_s = t_s

    def _tells_context(self, text: str) -> None:
        """The longest counts: a draft model has a context of its own."""
        self.told = max(self.told, context_of(text) or 0)
        self.context = self.told or self.asked

    def _go(self, index: int, t_s: float) -> bool:
        if index <= self.at:
            return False
        self.at = index
        self.begun.append((index, t_s))
        return True

    def _works(self, t_s: float) -> None:
        behind = self.ranks.behind()
        work = min(self.at, self.attempt, self.at if behind is None else behind)
        if work != self.work:
            self.work, self.since_s = work, t_s

    # ------------------------------------------------------------------ limits
    def limit_s(self) -> Optional[float]:
        """Of the stage at work, given or default; None where nobody can say what it does."""
        if self.working == "probe":
            return float(self.limits["probe_s"])
        given = self.given.get(self.working)
        if given is not None:
            return float(given)
        if not self.understood:
            return None
        # a process that says little may be further than it is known to be
        return max(STAGES[i].limit_s * self._stretch(i) for i in (self.work, self.at))

    def _stretch(self, index: int) -> float:
        return scale(self.context) if STAGES[index].scaled else 1.0

    def silence_s(self) -> float:
        return float(self.limits["silence_s"]) * max(map(self._stretch, (self.work, self.at)))

    def start_s(self) -> float:
        """Of the whole; the order's holds what the asked context adds, the log may tell a longer."""
        return float(self.limits["start_s"]) + self._longer_s()

    def _longer_s(self) -> float:
        more = longer_s(self.context, self.given) - longer_s(self.asked, self.given)
        return max(0.0, more)

    def newly_longer_s(self) -> float:
        """What start_s has gained since the last call, for whoever limits more than the start."""
        before, self._passed_on_s = self._passed_on_s, self._longer_s()
        return self._passed_on_s - before

    def overdue(self, t_s: float, silent_s: float, unfinished: str = "") -> Optional[str]:
        """Which limit is passed, in words: the stage, how long it lasts, the last line; or None.
        `unfinished`: what stands in the log after its last line's end.
        """
        limit_s, start_s = self.limit_s(), self.start_s()
        strict = self.working in self.given or self.working == "probe"
        lasts_s = t_s - self.since_s
        if limit_s is not None and strict and lasts_s > limit_s:
            why = "its limit is %g s" % limit_s
        elif limit_s is not None and not strict and min(lasts_s, t_s - self.moved_s) > limit_s:
            why = "no progress in the log for %g s" % limit_s
        elif t_s > start_s:
            why = "not ready within %g s" % start_s
        elif silent_s > self.silence_s():
            why = "no line in the log for %g s" % self.silence_s()
        else:
            return None
        return "%s; %s; %s" % (self.where(t_s), why, self._last(unfinished))

    def where(self, t_s: float) -> str:
        """The stage at work and how long it has lasted."""
        stage = STAGES[self.work]
        return "stage %s (%s) lasted %.1f s" % (stage.name, stage.words, t_s - self.since_s)

    def _last(self, unfinished: str) -> str:
        # progress bars overwrite themselves: the last piece is what a person would see
        said = unfinished if unfinished.strip() else self.last_line
        shown = [piece.strip() for piece in said.split("\r") if piece.strip()]
        return "last line: %s" % shown[-1][-_SHOWN:] if shown else "the log is empty"

    # ------------------------------------------------------------------ the record
    def table(self, t_s: float) -> List[Dict[str, Any]]:
        """[{"stage", "t_s": when it began, "seconds": how long it lasted}], in order."""
        ends = [begin for _, begin in self.begun[1:]] + [t_s]
        return [
            {"stage": NAMES[i], "t_s": round(begin, 3), "seconds": round(end - begin, 3)}
            for (i, begin), end in zip(self.begun, ends)
        ]
