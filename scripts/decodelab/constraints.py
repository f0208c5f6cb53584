"""Which combinations of options an engine refuses, known before anything starts.

In: a variant of the plan (engine, canonical flags) and what is known of its engine and model.
Out: an `Impossible` with code, words and source, or None. A wrong "impossible" costs a result, a
missing one costs a start that fails: so a claim is made only where the engine's version is one whose
source was read (of a vendor's engine its own file must hold the refusal too), and where each value
that it needs is written in the variant or was measured. A default is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from decodelab import effective

Release = tuple[int, int, int]
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.post\d+)?(?:\+([\w.]+))?")
# Local labels that upstream's own builds carry (`+cu118`, `+rocm641.d20250101`, `+cpu.gabc1234`): a
# device, the day, the commit. Any other part is somebody's changed engine (`+cu118.corex423`).
_UPSTREAM = re.compile(
    r"(?:cpu|cu\d{2,3}|rocm\d{2,4}|xpu|tpu)(?:\.d\d{8}|\.g[\da-f]{6,40}){0,2}"
    r"|(?:d\d{8}|g[\da-f]{6,40})"
)


@dataclass(frozen=True)
class Facts:
    """What is known of a variant's engine and model; None or empty: not known.

    All of one engine build. `backend` is the attention backend in effect in an earlier start with
    the same choice of backend, or the only one the probe says can be chosen. `refusals` are codes of
    this table whose words the probe found in the engine's own source. `weights_bytes` is what one
    device held after loading in an earlier start of the same model, parallel sizes, dtype and
    quantisation; `device_bytes` that device's whole memory.
    """

    version: str | None = None
    changed: bool = False  # a vendor's engine: the published source does not speak for it
    backend: str | None = None
    # The backends that multi-step accepts with chunked prefill, as this engine's own source has them.
    multi_step_backends: tuple[str, ...] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)  # the model's config.json
    refusals: frozenset[str] = frozenset()
    weights_bytes: float | None = None
    device_bytes: float | None = None


@dataclass(frozen=True)
class Impossible:
    code: str
    text: dict[str, str]  # zh and en
    source: str  # where the engine says so


class Range(NamedTuple):
    """Published versions, both ends included."""

    first: Release
    last: Release

    def holds(self, release: Release | None) -> bool:
        return release is not None and self.first <= release <= self.last


class Options:
    """A variant's canonical flags, read as the engine reads them; None where nothing is written."""

    def __init__(self, canonical: Mapping[str, Any]) -> None:
        self.flags = canonical

    def number(self, name: str) -> float | None:
        return effective.size(self.flags.get(name, ""))

    def switch(self, name: str) -> bool | None:
        return effective.switch(self.flags.get(name))

    def has(self, *names: str) -> bool:
        return any(flag.partition(".")[0] in names for flag in self.flags)


Values = dict[str, Any]
Test = Callable[[Options, Facts], Values | None]  # the values of its words; None: not refused


@dataclass(frozen=True)
class Rule:
    code: str
    versions: tuple[Range, ...]
    test: Test
    zh: str
    en: str
    source: str
    # Words of the refusal, as they stand in the engine's source (without its f-strings' values).
    words: str


# ---------------------------------------------------------------------- tests
def _budget_below_context(options: Options, _: Facts) -> Values | None:
    tokens, context = options.number("--max-num-batched-tokens"), options.number("--max-model-len")
    if options.switch("--enable-chunked-prefill") is not False or tokens is None or context is None:
        return None
    return {"tokens": tokens, "context": context} if tokens < context else None


def _budget_below_seqs(options: Options, _: Facts) -> Values | None:
    tokens, seqs = options.number("--max-num-batched-tokens"), options.number("--max-num-seqs")
    if tokens is None or seqs is None or tokens >= seqs:
        return None
    return {"tokens": tokens, "seqs": seqs}


def _heads_not_divisible(options: Options, facts: Facts) -> Values | None:
    if options.has("--hf-overrides", "--config-format"):
        return None
    model = facts.model.get("text_config") or facts.model
    heads = model.get("num_attention_heads") if isinstance(model, Mapping) else None
    size = options.number("--tensor-parallel-size")
    if not isinstance(heads, int) or heads <= 0 or not size or heads % size == 0:
        return None
    return {"heads": heads, "size": size}


def _chunked_multi_step(options: Options) -> float | None:
    """The steps, where both are asked for in so many words."""
    steps = options.number("--num-scheduler-steps")
    chunked = options.switch("--enable-chunked-prefill") is True
    return steps if chunked and steps is not None and steps > 1 else None


def _multi_step_chunked(options: Options, _: Facts) -> Values | None:
    steps = _chunked_multi_step(options)
    return None if steps is None else {"steps": steps}


def _multi_step_chunked_pipeline(options: Options, _: Facts) -> Values | None:
    steps, stages = _chunked_multi_step(options), options.number("--pipeline-parallel-size")
    if steps is None or stages is None or stages <= 1:
        return None
    return {"steps": steps, "stages": stages}


def _multi_step_speculation(options: Options, _: Facts) -> Values | None:
    steps = options.number("--num-scheduler-steps")
    if steps is None or steps <= 1 or not options.has("--speculative-model"):
        return None
    return {"steps": steps}


def _multi_step_backend(options: Options, facts: Facts) -> Values | None:
    steps, backend = _chunked_multi_step(options), facts.backend
    accepted = facts.multi_step_backends
    if accepted is None and not facts.changed:
        accepted = _accepted(release_of(facts.version))
    if steps is None or backend is None or not accepted:
        return None
    if any(effective.same_backend(backend, one) is not False for one in accepted):
        return None
    return {"steps": steps, "backend": backend, "accepted": ", ".join(accepted)}


def _accepted(release: Release | None) -> tuple[str, ...] | None:
    for versions, names in MULTI_STEP_CHUNKED:
        if versions.holds(release):
            return names
    return None


def _no_such_option(options: Options, _: Facts) -> Values | None:
    return {} if options.has("--num-scheduler-steps") else None


def _weights_above_share(options: Options, facts: Facts) -> Values | None:
    share = effective.number(options.flags.get("--gpu-memory-utilization"))
    weights, whole = facts.weights_bytes, facts.device_bytes
    if options.has("--num-gpu-blocks-override", "--kv-cache-memory-bytes", "--cpu-offload-gb"):
        return None
    if share is None or not weights or not whole or weights < share * whole:
        return None
    return {"weights": weights / 2**30, "room": share * whole / 2**30}


# ---------------------------------------------------------------------- the table
READ: Range = Range((0, 5, 5), (0, 32, 0))  # the published versions that were read
_V0 = Range((0, 5, 5), (0, 7, 3))
MULTI_STEP_CHUNKED = (
    (Range((0, 6, 3), (0, 6, 6)), ("FLASH_ATTN",)),
    (Range((0, 7, 0), (0, 10, 0)), ("FLASH_ATTN", "FLASHINFER")),
)

RULES: tuple[Rule, ...] = (
    Rule(
        "budget_below_context",
        # From 0.8 to 0.11 the V1 engine turns chunked prefill on whatever it is told.
        (_V0, Range((0, 32, 0), (0, 32, 0))),
        _budget_below_context,
        "关闭 chunked prefill 时 max_num_batched_tokens（{tokens:.0f}）不得小于 max_model_len（{context:.0f}）",
        "without chunked prefill max_num_batched_tokens ({tokens:.0f}) may not be below max_model_len "
        "({context:.0f})",
        "vllm/config.py, SchedulerConfig._verify_args",
        "is smaller than max_model_len",
    ),
    Rule(
        "budget_below_seqs",
        (READ,),
        _budget_below_seqs,
        "max_num_batched_tokens（{tokens:.0f}）不得小于 max_num_seqs（{seqs:.0f}）",
        "max_num_batched_tokens ({tokens:.0f}) may not be below max_num_seqs ({seqs:.0f})",
        "SchedulerConfig (vllm/config.py; vllm/config/scheduler.py)",
        "be greater than or equal to max_num_seqs",
    ),
    Rule(
        "heads_not_divisible",
        (READ,),
        _heads_not_divisible,
        "模型的 attention head 数（{heads}）不能被 tensor parallel size（{size:.0f}）整除",
        "the model's {heads} attention heads cannot be divided by the tensor parallel size {size:.0f}",
        "ModelConfig.verify_with_parallel_config",
        "must be divisible by tensor parallel size",
    ),
    Rule(
        "multi_step_chunked",
        (Range((0, 5, 5), (0, 6, 2)),),
        _multi_step_chunked,
        "此版本不支持 multi-step（{steps:.0f}）与 chunked prefill 同时启用",
        "this version refuses multi-step ({steps:.0f}) together with chunked prefill",
        "vllm/engine/arg_utils.py (issue #8274)",
        "Chunked prefill is not supported with multi-step",
    ),
    Rule(
        "multi_step_chunked_pipeline",
        (Range((0, 6, 3), (0, 7, 3)),),
        _multi_step_chunked_pipeline,
        "multi-step（{steps:.0f}）+ chunked prefill 不支持 pipeline parallel（{stages:.0f}）",
        "multi-step ({steps:.0f}) with chunked prefill is refused with pipeline parallel ({stages:.0f})",
        "vllm/engine/arg_utils.py (PR #8378)",
        "Multi-Step Chunked-Prefill is not supported",
    ),
    Rule(
        "multi_step_speculation",
        (Range((0, 5, 5), (0, 7, 3)),),
        _multi_step_speculation,
        "multi-step（{steps:.0f}）不支持投机解码",
        "multi-step ({steps:.0f}) is refused with speculative decoding",
        "vllm/engine/arg_utils.py",
        "Speculative decoding is not supported with multi-step",
    ),
    Rule(
        "multi_step_backend",
        (Range((0, 6, 3), (0, 10, 0)),),
        _multi_step_backend,
        "attention 后端 {backend} 不支持 multi-step（{steps:.0f}）+ chunked prefill，仅支持 {accepted}",
        "the attention backend {backend} does not take multi-step ({steps:.0f}) with chunked prefill "
        "(accepted: {accepted})",
        "vllm/worker/multi_step_model_runner.py, MultiStepModelRunner.__init__",
        "not supported for attention backend",
    ),
    Rule(
        "no_multi_step",
        (Range((0, 10, 1), (0, 32, 0)),),
        _no_such_option,
        "此版本的 vLLM 没有 --num-scheduler-steps（0.10.1 起移除）",
        "this version of vLLM has no --num-scheduler-steps (removed in 0.10.1)",
        "vllm/engine/arg_utils.py (PR #22138)",
        "",
    ),
    Rule(
        "weights_above_share",
        (READ,),
        _weights_above_share,
        "每卡权重已占 {weights:.2f} GiB，超过显存份额 {room:.2f} GiB，没有 KV cache 的空间",
        "the weights hold {weights:.2f} GiB of a device, its share is {room:.2f} GiB: no room for a KV "
        "cache",
        "the worker's memory profiling (`No available memory for the cache blocks`)",
        "No available memory for the cache blocks",
    ),
)


# ---------------------------------------------------------------------- the question
def known_impossible(variant: Mapping[str, Any], facts: Facts) -> Impossible | None:
    """`variant`: an entry of the plan's variants. The first rule that refuses it, in table order."""
    return next(refused(variant, facts), None)


def refused(variant: Mapping[str, Any], facts: Facts) -> Iterator[Impossible]:
    """Every rule that refuses the variant."""
    if not str(variant.get("engine") or "").startswith("vllm") or variant.get("attach"):
        return
    options = Options(variant.get("canonical") or {})
    release = release_of(facts.version)
    other_engine = str((variant.get("env") or {}).get("VLLM_USE_V1", "0")) != "0"
    if release is not None and release < (0, 8, 0) and other_engine:
        return  # the early V1 engine, which has rules of its own
    for rule in RULES:
        if not applies(rule, facts):
            continue
        values = rule.test(options, facts)
        if values is not None:
            text = {"zh": rule.zh.format(**values), "en": rule.en.format(**values)}
            yield Impossible(rule.code, text, rule.source)


def applies(rule: Rule, facts: Facts) -> bool:
    """Whether this engine is one that has the rule: its version is one that was read, and either it is
    the published engine or its own source has the refusal too.
    """
    if not any(versions.holds(release_of(facts.version)) for versions in rule.versions):
        return False
    published = is_published(facts.version) and not facts.changed
    return published or (bool(rule.words) and rule.code in facts.refusals)


def release_of(version: str | None) -> Release | None:
    """`0.6.3.post1+cu124` -> (0, 6, 3); None for a development version or a text that is none."""
    match = _RELEASE.fullmatch(version or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def is_published(version: str | None) -> bool:
    """Whether the version names a release of upstream's, not a vendor's or a working copy's."""
    match = _RELEASE.fullmatch(version or "")
    return match is not None and (match[4] is None or _UPSTREAM.fullmatch(match[4]) is not None)
