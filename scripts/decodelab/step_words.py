"""What makes a profile invalid, in words, for the reasons of a verdict: Chinese and English.

In: a `Problem`. Out: a reason. The figures of a problem are named in `step_checks` and `step_twin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab.step_table import Problem

TEXTS: dict[str, tuple[str, str]] = {
    "profile_no_steps": ("剖析没有记录到 decode 步", "the profile has no decode step"),
    "profile_target_missing": (
        "剖析在引擎中没有找到这些区域的目标：{regions}",
        "the profiler found no target in the engine for {regions}",
    ),
    "profile_not_closed": (
        "各区域之和与整步相差 {closure}，超过 {limit}",
        "the regions are {closure} off the step, more than {limit}",
    ),
    "profile_calls_unlike_config": (
        "{region} 每步应调用 {expected} 次（按模型配置），实际为 {seen} 次",
        "{region} is called {seen} times a step where the model's config says {expected}",
    ),
    "profile_inner_not_seen": (
        "CUDA graph 或 torch.compile 之下看不到 {regions}；请加 {hint}",
        "{regions} cannot be seen under CUDA graphs or torch.compile; add {hint}",
    ),
    "profile_ranks_disagree": (
        "各 rank 的 {region} 相差 {spread}，超过 {limit}",
        "the ranks differ in {region} by {spread}, more than {limit}",
    ),
    "profile_rank_missing": (
        "{expected} 个 rank 中缺少：{missing}",
        "of {expected} ranks these are missing: {missing}",
    ),
    "profile_overhead": (
        "剖析使每 token 时间变化 {overhead}，超过 {limit}",
        "profiling changes the time per token by {overhead}, more than {limit}",
    ),
    "profile_no_twin": (
        "未插桩的对照 {twin} 没有可比的运行",
        "the unprofiled twin {twin} has no run to compare with",
    ),
    "profile_output_differs": (
        "与未插桩的对照相比，{compared} 个请求中只有 {same} 个输出相同",
        "only {same} of {compared} requests gave the same output as without the profiler",
    ),
    "profile_output_not_compared": (
        "输出没有与未插桩的对照 {twin} 比较（{why}）",
        "the output was not compared with the unprofiled twin {twin} ({why})",
    ),
    "profile_dropped": ("剖析缓冲区溢出，丢失 {steps} 步", "the profiler lost {steps} steps"),
    "profile_too_few_steps": (
        "只有 {steps} 个可用的 decode 步，至少需要 {least} 个",
        "only {steps} decode steps can be used, at least {least} are needed",
    ),
    # of a question about a region
    "no_profile": (
        "{variant} 的运行没有剖析：{runs}",
        "these runs of {variant} were not profiled: {runs}",
    ),
    "profile_invalid": ("{run} 的剖析无效：{why}", "the profile of {run} is invalid: {why}"),
    "profile_sync": (
        "{run} 以 sync 模式剖析：只能给区域排序，不能给出占比和时间",
        "{run} was profiled in mode sync, which orders regions and tells no share or time of them",
    ),
    "profiling_differs": (
        "只有 {variant} 插桩，两组还有别的不同：剖析本身最多使速度慢 15%，不可比；请与 {twin} 比较，或两组都插桩",
        "{variant} alone is profiled, and the arms differ in more than that: profiling may cost up to"
        " 15%; compare with {twin}, or profile both",
    ),
    "profiling_compared": (
        "两组只差剖析：这里的效应就是 {variant} 的剖析开销",
        "the arms differ in profiling only: the effect is what profiling costs in {variant}",
    ),
    "profiled": (
        "存疑：{variants} 是插桩的，其速率含剖析开销（{cost}）",
        "a doubt: {variants} is profiled, so its rates hold what profiling costs ({cost})",
    ),
}  # fmt: skip
_SHARES = ("closure", "spread", "overhead")


def problem(found: Problem, language: int) -> str:
    """0 is Chinese, 1 English; a code without a text stands for itself."""
    texts = TEXTS.get(f"profile_{found.code}")
    if texts is None:
        return found.code
    return texts[language].format_map(_Shown(found.figures))


class _Shown(dict[str, str]):
    """Figures as they are read; one that is not there is a dash."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        super().__init__({name: _shown(name, value) for name, value in figures.items()})

    def __missing__(self, key: str) -> str:
        return "-"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:+.1%}" if name in _SHARES else f"{value:.0%}"
    return str(value)
