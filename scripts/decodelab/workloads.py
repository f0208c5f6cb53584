"""Workloads: prompts, tools and the points (one concurrency each) that become runs.

In: a filled config and the checkout's root (for prompt files). Out: Point objects.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodelab import digest

SCENARIOS = Path("scripts/cargo/scenarios")
SHIPPED = ("short", "tool")
# Model families name the switch of their chat template differently; one that a template does not know is ignored.
THINKING = ("enable_thinking", "thinking")
# Fields of a point that enter digest, plan and order only where they are not at their default, so that
# runs which use none of them stay what they were.
OPTIONS = (
    "rate",
    "arrivals",
    "cache",
    "min_tokens",
    "continuous_usage_stats",
    "return_token_ids",
    "cross_check",
)


@dataclass(frozen=True)
class Point:
    """One workload at one concurrency: everything a run is, but the server and the start."""

    workload: str
    scenario: str  # its name, a part of the run's name
    content: dict[str, Any]  # the scenario given to the client, its name left out
    concurrency: int  # of an open loop: the most requests open at once
    requests: int
    max_tokens: int
    warmup: int
    ignore_eos: bool
    options: dict[str, Any]  # of OPTIONS, those that are not at their default
    extra_body: dict[str, Any]
    telemetry: bool
    http: str
    seed: str
    suffix: str | None
    timeout_s: dict[str, float]

    @property
    def content_digest(self) -> str:
        return digest.of("scenario", self.content)

    def run(self, telemetry: bool) -> str:
        """Digest of the run; `telemetry` is whether this host really samples."""
        return digest.run({**self.parameters(telemetry), "scenario": self.content_digest})

    def parameters(self, telemetry: bool) -> dict[str, Any]:
        return {
            "concurrency": self.concurrency,
            "requests": self.requests,
            "max_tokens": self.max_tokens,
            "warmup": self.warmup,
            "ignore_eos": self.ignore_eos,
            "extra_body": self.extra_body,
            "telemetry": telemetry,
            "http": self.http,
            "seed": self.seed,
            **self.options,
        }


def points(config: dict[str, Any], root: Path) -> dict[str, list[Point]]:
    return {name: _points(name, entry, root) for name, entry in config["workloads"].items()}


def _points(name: str, entry: dict[str, Any], root: Path) -> list[Point]:
    content = scenario(entry, root)
    given = entry["concurrency"]
    return [
        Point(
            workload=name,
            scenario=scenario_name(entry),
            content=content,
            concurrency=concurrency,
            requests=entry["requests"],
            max_tokens=entry["max_tokens"],
            warmup=entry["warmup"],
            ignore_eos=entry["ignore_eos"],
            options=options(entry),
            extra_body=entry["extra_body"],
            telemetry=entry["telemetry"],
            http=entry["http"],
            seed=str(entry["seed"]),
            suffix=entry.get("suffix"),
            timeout_s=entry["timeout_s"],
        )
        for concurrency in (given if isinstance(given, list) else [given])
    ]


def options(entry: dict[str, Any]) -> dict[str, Any]:
    """The OPTIONS that say something; how requests arrive, only where they do by a rate."""
    defaults = {"arrivals": "poisson", "cache": "as_is"}
    said = {key: entry.get(key) for key in OPTIONS}
    if said["rate"] is None:
        said["arrivals"] = None
    else:
        said["rate"] = float(said["rate"])  # 2 and 2.0 are one rate
    return {k: v for k, v in said.items() if v not in (None, False, defaults.get(k))}


def scenario_name(entry: dict[str, Any]) -> str:
    """`scenario:` if given; else `tool` for short with tools, `syn<N>` for a made-up prompt, the
    prompt's own name without.
    """
    if entry.get("scenario"):
        return str(entry["scenario"])
    if isinstance(entry["prompt"], dict):
        return f"syn{entry['prompt']['tokens']}"
    prompt = str(entry["prompt"])
    stem = prompt if prompt in SHIPPED else Path(prompt).stem
    return "tool" if entry.get("tools") is not None and stem == "short" else stem


def scenario(entry: dict[str, Any], root: Path) -> dict[str, Any]:
    """The content the client is given: messages (or how many tokens to make up), tools,
    tool_choice, chat_template_kwargs.
    """
    content = read_prompt(entry["prompt"], root)
    tools = entry.get("tools")
    if tools is not None:
        shipped = read_tools(tools, root)
        content["tools"] = shipped["tools"]
        content["tool_choice"] = content.get("tool_choice") or shipped.get("tool_choice")
    if entry.get("tool_choice") is not None:
        content["tool_choice"] = entry["tool_choice"]
    content["chat_template_kwargs"] = {
        **(content.get("chat_template_kwargs") or {}),
        **entry["chat_template_kwargs"],
        **thinking(entry.get("thinking")),
    }
    asked = "prompt_tokens" if "prompt_tokens" in content else "messages"
    keys = (asked, "tools", "tool_choice", "chat_template_kwargs")
    return {key: content.get(key) for key in keys}


def prompt_file(prompt: str, root: Path) -> Path:
    return root / SCENARIOS / f"{prompt}.json" if prompt in SHIPPED else root / prompt


def thinking(said: Any) -> dict[str, bool]:
    """What on and off are in chat_template_kwargs; nothing where the model is left its own way."""
    return dict.fromkeys(THINKING, said == "on") if said in ("on", "off") else {}


def read_prompt(prompt: str | dict[str, int], root: Path) -> dict[str, Any]:
    """A number of tokens to make up, a scenario file (.json), or any text file, whose text is the
    one user message.
    """
    if isinstance(prompt, dict):
        return {"prompt_tokens": prompt["tokens"]}
    path = prompt_file(prompt, root)
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return {"messages": [{"role": "user", "content": text}]}
    content = json.loads(text)
    if not isinstance(content, dict) or not _asks(content):
        raise ValueError(
            f'{prompt}: a scenario file is an object with a list "messages", or a number "prompt_tokens"'
        )
    return content


def _asks(content: dict[str, Any]) -> bool:
    """Whether it has either messages or their length."""
    if "prompt_tokens" in content:
        tokens = content["prompt_tokens"]
        return type(tokens) is int and tokens > 0 and content.get("messages") is None
    return isinstance(content.get("messages"), list)


def read_tools(tools: int | str, root: Path) -> dict[str, Any]:
    """The first N of the shipped schemas, or a file: a list, or a scenario with tools."""
    if isinstance(tools, int):
        content = json.loads(prompt_file("tool", root).read_text(encoding="utf-8"))
        if tools > len(content["tools"]):
            raise ValueError(f"{len(content['tools'])} tool schemas are shipped")
        return {"tools": content["tools"][:tools], "tool_choice": content.get("tool_choice")}
    content = json.loads((root / tools).read_text(encoding="utf-8"))
    found = content.get("tools") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise ValueError(
            f'{tools}: a tools file is a list of schemas, or an object with a list "tools"'
        )
    return {
        "tools": found,
        "tool_choice": content.get("tool_choice") if isinstance(content, dict) else None,
    }
