"""How far a starting server is, and whether it takes too long.

In:  its log lines, what the HTTP side sees, times since the spawn (no clock here). Out: the stage
that it works on, what each stage took, and words for a limit that is passed.

A stage is work in progress: it begins with the line (or answer) of its row and lasts until a later
one begins. It never goes backwards, whatever a slower rank or a restart says. Limits of single
stages hold only for an engine whose log is understood; any other has the overall limit and that of
silence.
"""

# ruff: noqa: E501  (one stage a row: the table is read as a table)

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

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
# What is in effect, by V1 and by V0; a flag only asks for it.
_CONTEXT = re.compile(r"Using max model len (\d+)|\bmax_(?:seq|model)_len=(\d+)")
_MAX_LINE = 20_000  # characters; the rest of a longer line is a dump
_SHOWN = 300


def stage_of(line: str) -> Optional[str]:
    """The furthest stage that this log line says has begun, or None."""
    found = _index_of(line)
    return None if found is None else NAMES[found]


def _index_of(line: str) -> Optional[int]:
    text = line[:_MAX_LINE]
    return next((i for i, pattern in _BEGINS if pattern.search(text)), None)


def context_of(line: str) -> Optional[int]:
    """The context length, in tokens, that this log line says is in effect."""
    found = _CONTEXT.search(line[:_MAX_LINE])
    return int(found.group(1) or found.group(2)) if found else None


def scale(context: Optional[int]) -> float:
    """What the limits of scaled stages are multiplied by; 1 for a context that is not known."""
    return max(1.0, (context or 0) / CONTEXT_TOKENS)


class StageWatch:
    """One start. Times are seconds since the spawn.

    `limits`: start_s, silence_s, probe_s and, under "stages", limits of single stages (as given:
    what a person writes is not scaled); `context`: what was asked for, until the log says.
    """

    def __init__(
        self, limits: Mapping[str, Any], context: Optional[int] = None, understood: bool = False
    ) -> None:
        self.limits, self.context = limits, context
        self.at = 0
        self.begun: List[Tuple[int, float]] = [(0, 0.0)]
        self.understood = understood  # the engine is known, or its log names a stage of ours
        self.last_line = ""

    @property
    def stage(self) -> str:
        return NAMES[self.at]

    def line(self, text: str, t_s: float) -> bool:
        """Take in a log line; whether a new stage begins."""
        if text.strip():
            self.last_line = text
        self.context = context_of(text) or self.context
        found = _index_of(text)
        self.understood = self.understood or found is not None
        return found is not None and self._go(found, t_s)

    def reach(self, name: str, t_s: float) -> bool:
        """Something else than the log shows that this stage has begun."""
        return self._go(NAMES.index(name), t_s)

    def _go(self, index: int, t_s: float) -> bool:
        if index <= self.at:
            return False
        self.at = index
        self.begun.append((index, t_s))
        return True

    # ------------------------------------------------------------------ limits
    def limit_s(self) -> Optional[float]:
        """Of the stage at work; None where nobody can say what it does."""
        stage = STAGES[self.at]
        if stage.name == "probe":
            return float(self.limits["probe_s"])
        given = (self.limits.get("stages") or {}).get(stage.name)
        if given is not None:
            return float(given)
        if not self.understood:
            return None
        return stage.limit_s * (scale(self.context) if stage.scaled else 1.0)

    def silence_s(self) -> float:
        stretched = scale(self.context) if STAGES[self.at].scaled else 1.0
        return float(self.limits["silence_s"]) * stretched

    def overdue(self, t_s: float, silent_s: float, unfinished: str = "") -> Optional[str]:
        """Which limit is passed, in words: the stage, how long it lasts, the last line; or None.
        `unfinished`: what stands in the log after its last line's end.
        """
        lasts_s, limit_s = t_s - self.begun[-1][1], self.limit_s()
        if limit_s is not None and lasts_s > limit_s:
            why = "its limit is %g s" % limit_s
        elif t_s > self.limits["start_s"]:
            why = "not ready within %g s" % self.limits["start_s"]
        elif silent_s > self.silence_s():
            why = "no line in the log for %g s" % self.silence_s()
        else:
            return None
        return "%s; %s; %s" % (self.where(t_s), why, self._last(unfinished))

    def where(self, t_s: float) -> str:
        """The stage and how long it has lasted."""
        stage = STAGES[self.at]
        return "stage %s (%s) lasted %.1f s" % (stage.name, stage.words, t_s - self.begun[-1][1])

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
