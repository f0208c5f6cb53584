"""Silent degradation: the server answers, but slower or otherwise than its configuration says.

In: a server's log, of a good start too and with all that it wrote during the runs. Out: what the
log says was degraded, counted. What spoils a launch does so unless the configuration asked for it;
the rest is shown beside the run.
"""

# ruff: noqa: E501  (one rule a line: the table is read as a table)

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from decodelab.request_lines import telling_lines

if TYPE_CHECKING:
    from decodelab.records import Run

PREFIX = "degraded_"  # of the reason codes of a run


class Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    en: str
    zh: str
    asked_by: tuple[str, ...] = ()  # a flag that is not off, or variable=value: then it is wanted
    spoils: bool = True  # False: the engine's own choice among kernels, told and no more
    unless: re.Pattern[str] | None = None  # words in the same line that say that it is not so


def _rule(
    name: str, pattern: str, en: str, zh: str, *asked_by: str, spoils: bool = True, unless: str = ""
) -> Rule:
    but = re.compile(unless) if unless else None
    return Rule(name, re.compile(pattern), en, zh, asked_by, spoils, but)


_FALL = r"fall(?:ing|s)? ?back to "
_BROKEN = r"\b(?:not (?:available|supported|found|implemented|installed)|unavailable|unsupported|missing|failed|fails|cannot be|could not be)\b"
_OPERATOR = r"\b(?:kernels?|operators?|ops?|extension)\b"
_SLOW = r"(?:slow(?:er)?|naive|reference|unfused|non-fused|unoptimi[sz]ed)\b(?!.{0,20}(?:tokeni[sz]er|processor))"
_TORCH = r"(?:py)?torch\b(?!\.\w| SDPA)"
# Said of what might happen, of what does not, or of what a variable asks for.
_NOT_SO = r"\b(?:never|without|not|no longer|won't|instead of|avoid(?:s|ing)?|may|might|could|would|can) fall|\bif\b.{0,80}\bfall|\bVLLM_\w+ ?= ?\w"
# Of a part of the model alone.
_PART = r"\b(?:encoder(?![- ]decoder)|vision|multi-?modal|drafter|draft model)\b"

# The first row that matches a line counts it.
RULES: tuple[Rule, ...] = (
    _rule("nan_replaced", r"(?i)\bNaNs?\b.{0,120}\b(?:replac\w*|saniti[sz]\w*|zeroed|zeroing|(?:with|to|by|using|as) (?:zeros?|0|-?inf))\b|\bnan_to_num\b.{0,60}\b(?:appl|replac)|replac\w+ .{0,20}\bNaNs?\b",
          "the engine found NaN and replaced them: what it answers is not the model's", "引擎发现 NaN 并将其替换：输出不是模型的真实输出", unless=r"(?i)\b(?:will|would|may|can) be\b|\b(?:no|without|0) NaN|\bif\b.{0,40}\bNaN"),
    _rule("sampler_fallback", rf"(?i){_FALL}.{{0,30}}implementation of top-p|sampl\w+\b.{{0,120}}{_FALL}",
          "sampling does without its fused kernel", "采样未使用融合算子", spoils=False),
    _rule("operator_missing", r"Error in calling custom op",
          "a custom operator of the engine is missing or broken", "引擎的自定义算子缺失或不可用"),
    _rule("dtype_replaced", r"(?i)(?:doesn't|does not) support torch\.\w+\.? falling back to torch|is not supported .{0,30}, casting to|\bCasting torch\.bfloat16 to torch\.float16",
          "the engine computes in another dtype than the model's", "引擎使用的数据类型与模型不同", "--dtype"),
    _rule("kernel_fallback", rf"(?i)native kernel failed|\b{_FALL}(?:the |a )?(?:pure |slow(?:er)? |naive |native |eager )?{_TORCH}|\b{_FALL}(?:the )?{_SLOW}"
          rf"|{_OPERATOR}.{{0,100}}{_BROKEN}.{{0,80}}\b(?:{_FALL}|us(?:es?|ing) (?:the |a )?(?:pure |native )?(?:{_SLOW}|{_TORCH}))"
          rf"|(?:failed|unable|not able) to (?:load|import|find|compile|build|use|launch|initiali[sz]e)\b.{{0,60}}{_OPERATOR}.{{0,80}}{_FALL}|\bLayer .{{1,200}} is not supported by \S+ {_FALL}",
          "a fast kernel was replaced by a slow path", "快速算子被慢速实现替代", unless=rf"(?i){_NOT_SO}"),
    _rule("eager_forced", rf"(?i)\benforce[- _]eager (?:is )?set\b|CUDA ?graphs? (?:(?:is|are|was|were) )?(?:not supported|disabled)(?: for this (?:model|platform|device|backend)\b|(?! (?:for|in|during)\b))"
          rf"|{_FALL}(?:the )?eager(?: (?:mode|execution)\b|[.,;:)]|$)|\b(?:running|runs|executing|continuing) in eager mode\b|\beager mode is (?:en)?forced\b|\b(?:running|continuing|proceeding) without (?:CUDA ?)?graphs?\b"
          r"|(?:setting|set) cudagraph_mode ?(?:=|to) ?(?:CUDAGraphMode\.)?NONE|Initializing an? (?:V\d )?LLM engine .*\benforce_eager=True",
          "the engine runs eagerly, without graphs", "引擎以 eager 模式运行，未使用图", "--enforce-eager", unless=rf"(?i)^(?!Initializing ).*(?:{_NOT_SO}|{_PART})"),
    _rule("engine_fallback", r"(?i)falling back to V0\b",
          "the engine fell back to its older generation", "引擎退回到旧一代", "VLLM_USE_V1=0"),
    _rule("block_table_capped", r"(?i)block[ _-]?tables?\b.{0,120}\b(?:capped|capping|clamp(?:ed|ing)|truncat(?:ed|ing))\b|\b(?:capp|clamp|truncat)(?:ed|ing)\b.{0,80}block[ _-]?tables?\b",
          "the block table was capped: long contexts are cut short", "block table 被截断：长上下文不完整"),
    _rule("quantization_emulated", r"(?i)does not have native support for FP\d+ computation",
          "the device does not compute in this quantization: only the weights are stored in it", "设备不支持该量化格式的计算：仅权重以该格式存储", spoils=False),
    _rule("backend_passed_over", r"Cannot use \S+ (?:attention )?backend (?:for|because|due)",
          "the preferred attention backend cannot be used here", "首选的注意力后端在此不可用", "--attention-backend", "VLLM_ATTENTION_BACKEND", spoils=False),
    _rule("kernel_untuned", r"Using default (?:W8A8 Block FP8 kernel|MoE) config\. Performance might be sub-optimal",
          "a kernel runs with untuned settings on this device", "算子在该设备上使用未调优的参数", spoils=False),
    _rule("all_reduce_plain", r"(?i)custom ?all_?reduce is disabled (?:because|due)",
          "the engine's own all-reduce is off: devices have no direct access to each other", "引擎自带的 all-reduce 未启用：卡间无法直接访问", "--disable-custom-all-reduce", spoils=False),
)  # fmt: skip
BY_NAME = {rule.name: rule for rule in RULES}
# Words of which every match of a rule holds one: nearly all lines of a long log are passed over.
_HINTS = ("nan", "fall", "custom op", "native", "cast", "eager", "graph", "table", "cannot use", "default", "reduce",
          "missing", "not found", "not available", "unavailable", "not implemented", "not supported", "not installed",
          "unsupported", "fail", "not be")  # fmt: skip
# The arguments, as they are printed, hold a user's words as well: a chat template, a name.
_ARGUMENTS = re.compile(r"non-default args: |\bargs: Namespace\(")


def degradations(log_text: str) -> list[dict[str, Any]]:
    """[{"name", "count" of lines, "first_line": 1-based number, "line": its text}], as they came."""
    found: dict[str, dict[str, Any]] = {}
    for number, raw in enumerate(log_text.split("\n"), 1):
        for line in telling_lines(_ARGUMENTS.split(raw, 1)[0], _HINTS):
            _count(found, number, line.text)
    return list(found.values())


def _count(found: dict[str, dict[str, Any]], number: int, text: str) -> None:
    rule = next((rule for rule in RULES if _matches(rule, text)), None)
    if rule is not None:
        first = {"name": rule.name, "count": 0, "first_line": number, "line": text.strip()}
        found.setdefault(rule.name, first)["count"] += 1


def _matches(rule: Rule, text: str) -> bool:
    return bool(rule.pattern.search(text)) and not (rule.unless and rule.unless.search(text))


def cell(found: Iterable[Mapping[str, Any]]) -> str | None:
    """`nan_replaced:16:81;…`: name, count, first line; the cell `degraded` of starts.csv."""
    texts = [f"{item['name']}:{item['count']}:{item['first_line']}" for item in found]
    return ";".join(texts) or None


def read_cell(text: str | None) -> list[tuple[Rule, int, int]]:
    """(rule, count, first line) of each."""
    items = [item.split(":") for item in (text or "").split(";") if item]
    return [(BY_NAME[name], int(count), int(line)) for name, count, line in items]


def wanted(rule: Rule, variant: Mapping[str, Any]) -> bool:
    """Whether the configuration asked for it. Flags are looked up as the server gets them."""
    flags = variant.get("canonical") or variant.get("flags") or {}
    env = variant.get("env") or {}
    for asked in rule.asked_by:
        name, _, value = asked.partition("=")
        given = {**flags, **env}.get(name)
        if given is not None and given is not False and (not value or str(given) == value):
            return True
    return False


def standing(rule: Rule, variant: Mapping[str, Any], accepts: Iterable[str]) -> str:
    """ "told" and no more, "wanted" by the configuration, "accepted" by the study, or a "fault"."""
    if wanted(rule, variant):
        return "wanted"
    if not rule.spoils:
        return "told"
    return "accepted" if rule.name in accepts else "fault"


def spoil(run: Run, plan: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]) -> None:
    """A run of a spoilt start is invalid, and says why."""
    name = run.planned["variant"]
    for start in starts:
        if (start["variant"], start["start_id"]) != (name, run.entry.get("start_id")):
            continue
        variant = (plan.get("variants") or {}).get(name) or {}
        codes = [
            PREFIX + rule.name
            for rule, _count, _line in read_cell(start.get("degraded"))
            if standing(rule, variant, plan.get("accepts") or ()) == "fault"
        ]
        if codes:
            run.validity = "invalid"
            run.reasons.extend(code for code in codes if code not in run.reasons)


REASONS: dict[str, tuple[str, str]] = {
    PREFIX + rule.name: (rule.zh, rule.en) for rule in RULES if rule.spoils
}
