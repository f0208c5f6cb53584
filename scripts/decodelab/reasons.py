"""Why a verdict is what it is, in words: one row per reason code, Chinese and English.

In: a code and its values. Out: {"code", "zh", "en"}. A code of a run's validity (see `records`) is
a reason too."""

from __future__ import annotations

from typing import Any

from decodelab import degradation

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
