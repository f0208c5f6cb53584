"""Why a verdict is what it is, in words: one row per reason code, Chinese and English.

In: a code and its values. Out: {"code", "zh", "en"}. A code of a run's validity (see `records`) is
a reason too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodelab import degradation, step_words

TEXTS: dict[str, tuple[str, str]] = {
    # what decides nothing
    "not_measured": ("尚未测量：{runs}", "not measured yet: {runs}"),
    "launches_missing": ("部分启动尚未测量：{runs}", "some launches are not measured yet: {runs}"),
    "nothing_to_compare": ("没有可比较的运行", "there are no runs to compare"),
    "no_value": (
        "指标 {metric} 在这些运行中没有值：{runs}",
        "the metric {metric} has no value in these runs: {runs}",
    ),
    "no_relative_change": (
        "指标含零或无穷值，无法计算相对变化",
        "a value is zero or infinite: no relative change",
    ),
    "not_possible": ("{variant} 不能启动：{cause}", "{variant} cannot start: {cause}"),
    "screened_out": (
        "{variant} 在筛选中出局，未做完整测量：{metric} 为 {value}，最优为 {best}（要求相差不超过 {within}）",
        "{variant} was screened out and not measured in full: {metric} {value} against {best}, more than "
        "{within} apart",
    ),
    # guards of a question
    "run_invalid": ("运行 {run} 无效：{why}", "run {run} is invalid: {why}"),
    "start_invalid": (
        "{variant} 的启动无效：{cause}",
        "the start of {variant} is invalid: {cause}",
    ),
    "backend_not_in_effect": (
        "{variant} 请求的后端 {asked} 没有生效，日志显示使用 {used}",
        "{variant} asked for the backend {asked}, which did not take effect: the log says {used}",
    ),
    "option_ignored": (
        "{variant} 的 {option} 被引擎忽略",
        "the engine ignores {option} of {variant}",
    ),
    "option_not_in_effect": (
        "{variant} 请求 {option} {asked}，实际生效的是 {used}（{source}）",
        "{variant} asked for {option} {asked}; in effect is {used} ({source})",
    ),
    "tokens_differ": (
        "两组的 {what} 不同：{a} 对 {b}",
        "the arms differ in {what}: {a} against {b}",
    ),
    "cache_state_differs": (
        "两组的缓存命中率不同：{a} 对 {b}",
        "the arms differ in cache hits: {a} against {b}",
    ),
    "not_compared": (
        "存疑：{variant} 没有给出 {what}，无法核对两组是否一致",
        "a doubt: {variant} does not tell {what}, so it is not checked whether the arms agree in it",
    ),
    "sources_differ": (
        "两组的数据来源不同：{a} 对 {b}",
        "the arms differ in source: {a} against {b}",
    ),
    "identity_differs": (
        "不同启动的 {key} 不一致，而实验并未改变它：{a} 对 {b}",
        "the starts differ in {key}, which was not varied: {a} against {b}",
    ),
    "token_counts_needed": (
        "两组的 {flag} 不同，但缺少逐事件的 token 数，decode 速率不可比",
        "the arms differ in {flag}, and token counts per event are missing: decode rates cannot be "
        "compared",
    ),
    "events_in_bursts": (
        "两组的事件成批到达的方式不同（{what}）：事件间隔不是每 token 的时间，请改问 tpot_s",
        "events come in bursts there, and not alike in both arms ({what}): a gap between events is "
        "no time per token; ask tpot_s",
    ),
    # notes
    "one_launch": (
        "每组只有一次启动：区间取自启动间噪声的经验值 ±{floor}",
        "one launch in an arm: the interval is the field value of the restart floor, ±{floor}",
    ),
    "one_launch_against_many": (
        "一组只有一次启动：区间取自另一组启动之间的离散度，不小于经验值 ±{floor}",
        "one launch in an arm: the interval is the scatter between the other arm's starts, at least the"
        " field value of ±{floor}",
    ),
    "counted_share": (
        "区间只由请求个数得出（计数的得分区间）：每组只有一次启动，启动间的差异不在其中",
        "the interval is that of the number of requests (score interval of counts); with one launch an"
        " arm it holds no scatter between starts",
    ),
    "share_uncounted": (
        "该比例由多少个请求得出没有记录：区间只取自启动之间的差异",
        "it is not on record of how many requests the share is: only its starts tell the interval",
    ),
    "floor_measured": (
        "噪声底由本研究的 A/A 组实测：{variants} 的 {n} 次启动，启动间标准差 {scatter}，自由度 {df}",
        "the floor is measured by this study's A/A arm: {n} starts of {variants}, standard deviation"
        " between starts {scatter}, {df} degrees of freedom",
    ),
    "aa_starts_left_out": (
        "A/A 组的启动 {starts} 无效，未计入实测噪声底",
        "the measured floor leaves out invalid A/A starts: {starts}",
    ),
    "aa_floor_lost": (
        "存疑：A/A 组的启动 {starts} 无效，剩余启动不足以实测噪声底，改用经验值",
        "a doubt: the A/A starts {starts} are invalid, and the others are too few to measure the"
        " floor: it is the field value",
    ),
    "within_drift": (
        "存疑：每组只有一次启动，顺序无法平衡；效应未超过噪声底加上主机漂移（经验值 {drift}）",
        "one launch in an arm, so the order is not balanced: the effect does not exceed the floor"
        " plus the host's drift (field value {drift})",
    ),
    "one_of_many": (
        "此问题比较了 {n} 对变体：其中最好的一个单凭噪声就可能领先这么多，换作单独比较才算支持",
        "this question compares {n} pairs of variants: the best of so many may lead by this much by"
        " noise alone; of a single pair it would be supported",
    ),
    "refuted_within_drift": (
        "存疑：每组只有一次启动，顺序无法平衡；主机漂移（经验值 {drift}）可能掩盖了要求的效应",
        "a doubt: one launch in an arm, so the order is not balanced; the host's drift (field value"
        " {drift}) could hide the effect that was asked for",
    ),
    "drift": (
        "存疑：{variant} 从最早一次启动到最晚一次启动变化了 {effect}，超过噪声底 {floor}：主机在研究期间发生了漂移",
        "a doubt: from its first start to its last {variant} changed by {effect}, more than the floor"
        " of {floor}: the host drifted meanwhile",
    ),
    "aa_differs": (
        "存疑：{variant} 与自身比较（A/A）也有差异：{effect}，95% 区间 {low} 至 {high} 不含 0",
        "a doubt: {variant} differs from itself (A/A) by {effect}; the 95% interval {low} to {high}"
        " does not hold 0",
    ),
    "guard_worse": (
        "护栏指标 {metric} 变差：{effect}（95% 区间 {low} 至 {high}），超过允许的 {limit}",
        "the guard {metric} got worse: {effect} (95% interval {low} to {high}), more than the"
        " {limit} that it may lose",
    ),
    "guard_open": (
        "护栏指标 {metric} 无法判断：{effect}（95% 区间 {low} 至 {high}），允许变差 {limit}",
        "the guard {metric} cannot be told: {effect} (95% interval {low} to {high}), and it may lose"
        " {limit}",
    ),
    "guard_no_value": (
        "护栏指标 {metric} 在 {variants} 中没有值",
        "the guard {metric} has no value in {variants}",
    ),
    "metric_substituted": (
        "{metric} 无值，改用 {used}（两组 token 数相同，比值一致）",
        "{metric} is not known; {used} is used (with equal token counts the ratio is the same)",
    ),
    # validity of a run
    "no_success": ("没有成功的请求", "no request succeeded"),
    "evaluator_disagrees": (
        "评测器自己的汇总与其逐请求记录不一致",
        "the evaluator's own account and its rows disagree",
    ),
    "server_died": ("服务在运行中退出", "the server died in the run"),
    "attempted_below_planned": ("发出的请求少于计划", "fewer requests were sent than planned"),
    "no_ok_request": ("没有成功的请求", "no request succeeded"),
    "limit": ("运行未在时限内结束", "the run did not end within its limit"),
    "client_failed": ("负载客户端自身失败", "the load client itself failed"),
    "health_failed": ("服务进程仍在但不再应答", "the server lived but no longer answered"),
    "engine_changed": ("运行期间引擎文件发生变化", "the engine's files changed while it ran"),
    "host_shared": (
        "主机锁文件在运行期间被删除：可能有他人同时使用该主机",
        "the host's lock file was deleted meanwhile: somebody else may have used the host",
    ),
    "client_stalled": ("客户端曾停顿", "the load client stood still"),
    "stamps_late": ("客户端时间戳滞后", "the client's stamps were late"),
    "usage_impossible": (
        "usage 的 token 数超过 max_tokens，不可能",
        "usage counts more tokens than max_tokens allows",
    ),
    "telemetry_missing": (
        "要求采样但没有任何读数",
        "samples were asked for and none could be read",
    ),
    "usage_and_events_disagree": ("usage 与事件数不一致", "usage and events disagree"),
    "usage_missing": (
        "有成功的请求没有给出 usage，token 数未知",
        "a successful request came without usage: its token count is not known",
    ),
    "token_counts_missing": (
        "要求了逐事件的 token 数，但流中的事件没有给出",
        "token counts were asked for with every event, and the stream did not give them",
    ),
    "cached_tokens_not_as_declared": (
        "缓存命中与声明的 cache 不符",
        "cached tokens are not as the workload's cache declares",
    ),
    "thinking_not_as_declared": (
        "声明关闭 thinking，却收到了推理文本",
        "thinking was declared off, yet reasoning came",
    ),
    "prompt_not_as_sized": (
        "prompt 的 token 数与要求的长度相差超过 2%",
        "the prompt's tokens differ from the length asked for by more than 2%",
    ),
    "schedule_not_kept": (
        "请求发出的时刻明显晚于计划",
        "requests left noticeably later than their schedule",
    ),
    "server_counted_more": (
        "服务端统计的 token 多于本次运行的 usage：可能有别人同时使用该服务",
        "the server counted more tokens than this run's usage: others may have used it meanwhile",
    ),
    "server_counted_less": (
        "服务端统计的 token 少于本次运行的 usage",
        "the server counted fewer tokens than this run's usage",
    ),
    "telemetry_gap": ("遥测有空洞", "the telemetry has a gap"),
    "telemetry_does_not_cover": ("遥测没有覆盖整个运行", "the telemetry does not cover the run"),
    "telemetry_wedged": (
        "有卡死的加速卡：恒为 100%，显存空闲且无进程，不是负载",
        "a wedged card: a constant 100 % with idle memory and no process, which is no load",
    ),
    "telemetry_fewer_gpus": (
        "看到的加速卡少于配置或并行规模所声明的数量",
        "fewer accelerators were seen than the config or the parallel size declares",
    ),
    "marked_invalid": ("主机端标记为无效", "marked invalid by the host"),
    # a start that served, degraded
    **degradation.REASONS,
    # a profile, and what profiling does to the others
    **step_words.TEXTS,
}


def reason(code: str, **values: Any) -> dict[str, str]:
    """The reason in both languages; a code without a text stands for itself."""
    zh, en = TEXTS.get(code, (code, code))
    return {"code": code, "zh": zh.format(**values), "en": en.format(**values)}


def validity(codes: str | None, language: int) -> str:
    """The codes of a run (`a;b`) as words; 0 is Chinese, 1 English."""
    parts = [TEXTS.get(code, (code, code))[language] for code in (codes or "").split(";") if code]
    return ("；" if language == 0 else "; ").join(dict.fromkeys(parts)) or "-"


def run_invalid(run: str, codes: str | None) -> dict[str, str]:
    zh, en = TEXTS["run_invalid"]
    return {
        "code": "run_invalid",
        "zh": zh.format(run=run, why=validity(codes, 0)),
        "en": en.format(run=run, why=validity(codes, 1)),
    }


def at_concurrency(level: int, why: Mapping[str, str]) -> dict[str, str]:
    """A reason that holds at one concurrency of a curve."""
    return {
        **why,
        "zh": f"并发 {level}：{why['zh']}",
        "en": f"concurrency {level}: {why['en']}",
    }


def screened_out(variant: str, told: Mapping[str, Any]) -> dict[str, str]:
    """`told`: metric, value, best and within of a race that the variant is out of."""
    figures = {name: f"{told[name]:.3g}" for name in ("value", "best")}
    within = f"{told['within']:.0%}"
    return reason("screened_out", variant=variant, metric=told["metric"], within=within, **figures)
