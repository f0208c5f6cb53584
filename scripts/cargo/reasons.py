"""Reasons that the host agent itself gives, in the shape of a start's cause (contract section 6).

In: a reason's code and the facts of the case. Out: the cause object, its hint in two languages.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

from cargo.mask import url_passwords

# code -> (side, hint in English, hint in Chinese); one action each
REASONS: Dict[str, Tuple[str, str, str]] = {
    "engine_changed": (
        "host",
        "The engine's files are not those measured under this label: change server.build.",
        "引擎文件与该标签下已测的不同：请修改 server.build。",
    ),
    "port_in_use": (
        "host",
        "Free the port, or leave out hosts.<name>.port so that a free one is taken.",
        "释放该端口，或不设 hosts.<name>.port 以自动选用空闲端口。",
    ),
    "launch_script": (
        "host",
        "Check that the first word of the command exists on the host and may be executed.",
        "检查命令的第一个词在该主机上存在且可执行。",
    ),
    "probe_failed": (
        "host",
        "It answers /health but gives no token: read the server log, check the model's name.",
        "服务能应答 /health 但不产生 token：请查看服务日志并核对模型名。",
    ),
    "not_reachable": (
        "host",
        "Check that a server runs at the attach address and answers /v1/models.",
        "检查 attach 地址上有服务在运行并能应答 /v1/models。",
    ),
    "server_died": (
        "host",
        "The server ended during the runs: read the end of the server log.",
        "服务在测量过程中退出：请查看服务日志末尾。",
    ),
    "ended_early": (
        "host",
        "It ended before it was ready and named no error: does its command go into the background?",
        "服务在就绪前退出且没有报错：启动命令是否把自己放到了后台？",
    ),
    "life_over": (
        "host",
        "The launch used up its maximum life: raise the limits or make its runs smaller.",
        "本次启动超过了最长寿命：请放宽限制或减少测量。",
    ),
    "lock_timeout": (
        "host",
        "Someone else works on this host: wait, or ask the owner that is named.",
        "该主机正被他人使用：请等待，或联系所示的占用者。",
    ),
    "lock_unusable": (
        "host",
        "Name a lock file that every user of the host may open (hosts.<name>.lock).",
        "请指定一个该主机所有用户都能打开的锁文件（hosts.<name>.lock）。",
    ),
    "setup_failed": (
        "host",
        "Correct the setup script: source it by hand on the host in a new shell.",
        "请修正 setup 脚本：在该主机的新 shell 中手动 source 一次。",
    ),
    "device_unfit": (
        "host",
        "See to the accelerator that is named, or let another set be chosen (devices: any); end no check that hangs.",
        "请处理所示的加速卡，或改选其他卡（devices: any）；不要强行结束挂起的检查。",
    ),
    "secret_missing": (
        "host",
        "Set the named environment variable where you call snakemake.",
        "请在调用 snakemake 的环境中设置所示的环境变量。",
    ),
    "no_space": (
        "host",
        "Free space on the host's disk; what was finished is kept.",
        "请释放该主机的磁盘空间；已完成的结果都保留。",
    ),
    "not_writable": (
        "host",
        "Make the working folder writable, or set hosts.<name>.workdir to another.",
        "请使工作目录可写，或把 hosts.<name>.workdir 设为其他目录。",
    ),
    "left_processes": (
        "host",
        "The server's processes cannot be killed (a stuck driver): ask the host's administrator.",
        "服务进程无法杀死（驱动卡死）：请联系主机管理员。",
    ),
    "agent_error": (
        "host",
        "The host agent could not go on: read agent.log in the working folder.",
        "主机代理无法继续：请查看工作目录下的 agent.log。",
    ),
}


def cause(code: str, text: str) -> Dict[str, Any]:
    side, en, zh = REASONS[code]
    return {
        "class": code,
        "root_cause": url_passwords(text),
        "line": None,
        "stage": None,
        "hint": {"en": en, "zh": zh},
        "side": side,
        "confidence": "high",
    }
