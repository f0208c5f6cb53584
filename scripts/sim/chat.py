"""OpenAI chat completions: a request's JSON in; a sequence for the engine and its reply out.

The simulated model thinks, closes with `</think>` and answers; where chat_template_kwargs turn
thinking off, the prompt closes it and the model answers at once. With a reasoning parser its
thoughts are `reasoning_content` and the marker is swallowed; without one everything is `content`.
Where it has tools its answer closes with a call of the first: `tool_calls` with a tool parser, else text.
The call's marks `<tool_call>` are one token each, those inside it several, as Qwen's are.

SIM_FAULTS (startup.FAULTS) names what engines are known to do wrong when a step makes several tokens.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sim.engine import Sequence, count_tokens

WORDS = ("decode", "pays", "in", "each", "step", "for", "its", "schedule", "and", "sync")
THINK, ANSWER = 512, 160  # tokens; </think> between them, EOS after them (unless ignore_eos)


def call_tokens(tools: list) -> list:
    """A call of the first tool, token by token: its text, and what a tool parser makes of it, None or
    (key of the call's function, text)."""
    function = tools[0].get("function") or {}
    name = str(function.get("name"))
    asked = (function.get("parameters") or {}).get("properties") or {"value": {}}
    key = str(next(iter(asked)))
    return [
        ("<tool_call>", None), ("\n", None), ("<", None), ("function", None), ("=", None),
        (name, None), (">", ("name", name)), ("\n", None),
        ("<", None), ("parameter", None), ("=", None), (key, None), (">", None),
        ("\n", ("arguments", "{" + json.dumps(key) + ': "')),
        ("Shang", ("arguments", "Shang")), ("hai", ("arguments", "hai")), ("\n", None),
        ("</", None), ("parameter", None), (">", ("arguments", '"}')), ("\n", None),
        ("</", None), ("function", None), (">", None), ("\n", None), ("</tool_call>", None),
    ]  # fmt: skip


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def thinks(data: dict) -> bool:
    """As model families name it: Qwen enable_thinking, DeepSeek thinking."""
    asked = data.get("chat_template_kwargs") or {}
    return bool(asked.get("enable_thinking", asked.get("thinking", True)))


def render_prompt(messages: list, tools: list, thinking: bool = True) -> str:
    """Like Qwen's template: tool schemas come inside the first system message, after its text."""
    turns = [(m["role"], m["content"]) for m in messages]
    if tools:
        first = turns.pop(0)[1] if turns[0][0] == "system" else ""
        schemas = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
        turns.insert(0, ("system", f"{first}\n\n# Tools\n<tools>\n{schemas}\n</tools>"))
    text = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return text + "<|im_start|>assistant\n" + ("" if thinking else "<think>\n\n</think>\n\n")


def prompt_of(data: dict, config: Any) -> str:
    """The prompt of a chat request; /tokenize takes the same keys and so counts the same."""
    if data.get("model", config.model) != config.model:
        raise ValueError(f"The model `{data['model']}` does not exist.")
    return render_prompt(data["messages"], data.get("tools") or [], thinks(data))


def tokenized(body: bytes, config: Any) -> dict:
    """The answer of /tokenize, to `messages` or to a bare `prompt`."""
    data = json.loads(body)
    count = count_tokens(data["prompt"] if "prompt" in data else prompt_of(data, config))
    return {"count": count, "max_model_len": config.max_model_len, "tokens": list(range(count))}


class Chat(Sequence):
    """One request: what it asks for, and how its reply is written."""

    def __init__(self, body: bytes, config: Any) -> None:
        data = json.loads(body)  # any exception says what is wrong with the request
        least, limit = data.get("min_tokens") or 0, data.get("max_tokens")
        self.thoughts = THINK if thinks(data) else -1  # token number of </think>; -1: none
        natural = max(self.thoughts + 1 + ANSWER, least)
        limit = natural if limit is None else limit
        self.reason = "length" if data.get("ignore_eos") or limit < natural else "stop"
        self.ends_at = (
            limit if self.reason == "length" else natural
        )  # the token that ends the reply
        self.faults, k = config.faults, max(1, config.num_scheduler_steps)
        late = (1 - self.ends_at) % k if "overshoot" in self.faults and self.reason == "stop" else 0
        super().__init__(prompt_of(data, config), self.ends_at + late)
        tools = data.get("tools") if data.get("tool_choice") != "none" else None
        self.call = call_tokens(tools) if tools else []
        self.call_at = self.thoughts + 1 + ANSWER - len(self.call)  # token number
        self.calls = bool(self.call and config.enable_auto_tool_choice and config.tool_call_parser)
        if self.calls and self.reason == "stop":
            self.reason = "tool_calls"
        if least > limit:
            raise ValueError(f"min_tokens must be less than or equal to max_tokens={limit}")
        if not 1 <= limit <= config.max_model_len - self.prompt_tokens:
            asked, longest = self.prompt_tokens + limit, config.max_model_len
            raise ValueError(f"maximum context length is {longest} tokens, requested are {asked}")
        self.parsed, self.stream = bool(config.reasoning_parser), bool(data.get("stream"))
        options = data.get("stream_options") or {}
        self.include_usage = bool(options.get("include_usage"))
        self.usage_each = self.include_usage and bool(options.get("continuous_usage_stats"))
        self.ids_each = bool(data.get("return_token_ids"))
        self.bursts = config.multi_step_stream_outputs is False  # an event holds a whole burst
        kind = "chat.completion.chunk" if self.stream else "chat.completion"
        self.head = {"id": f"chatcmpl-{os.urandom(8).hex()}", "object": kind, "model": config.model}
        self.sent = 0

    def _token(self, i: int) -> tuple:
        """(field, text) of the i-th output token; of a parsed call the field is the function's key."""
        if 0 <= i - self.call_at < len(self.call):
            text, parsed = self.call[i - self.call_at]
            return (parsed or ("content", "")) if self.calls else ("content", text)
        if i == self.thoughts:
            return "content", "" if self.parsed else "</think>"
        field = "reasoning_content" if self.parsed and i < self.thoughts else "content"
        return field, " " + WORDS[i % len(WORDS)]

    def _delta(self, begin: int, end: int) -> dict:
        if "leak" in self.faults and end - begin > 1 and begin <= self.thoughts < end:
            # a parser that looks for its mark as a whole delta
            return {"content": "".join(self._raw(i) for i in range(begin, end))}
        delta: dict = {}
        for field, text in map(self._token, range(begin, end)):
            if field in ("name", "arguments"):
                if "tool_calls" not in delta:
                    delta["tool_calls"] = [{"index": 0, "function": {}}]
                function = delta["tool_calls"][0]["function"]
                function[field] = function.get(field, "") + text
            elif text:
                delta[field] = delta.get(field, "") + text
        return delta

    def _raw(self, i: int) -> str:
        return "</think>" if i == self.thoughts else self._token(i)[1]

    def usage(self, sent: int) -> dict:
        out: dict = {"prompt_tokens": self.prompt_tokens, "completion_tokens": sent}
        out["total_tokens"] = self.prompt_tokens + sent
        out["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.parsed:
            thoughts = min(sent, max(0, self.thoughts))
            out["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return out

    def _chunk(self, delta: dict, begin: int, end: int) -> dict:
        """An event that brings the tokens from begin to end."""
        reason = self.reason if begin < self.ends_at <= end else None
        choice: dict = {"index": 0, "delta": delta, "finish_reason": reason}
        chunk: dict = {**self.head, "choices": [choice]}
        if self.ids_each and end:
            choice["token_ids"] = list(range(begin, end))  # as many as there are; no vocabulary
        elif self.ids_each:
            chunk["prompt_token_ids"] = list(range(self.prompt_tokens))
        if self.usage_each:
            chunk["usage"] = self.usage(end)
        return chunk

    def events(self, n: int) -> list:
        """SSE events of the next n tokens: one each, as 0.6.3 does with multi-step too, or, where
        its outputs are not streamed, one for all. A token without text is told by its id only."""
        begin, self.sent = self.sent, self.sent + n
        chunks = [] if begin else [self._chunk({"role": "assistant", "content": ""}, 0, 0)]
        for at in range(begin, self.sent, n if self.bursts else 1):
            end = self.sent if self.bursts else at + 1
            delta = self._delta(at, end)
            if delta or self.ids_each or at < self.ends_at <= end:
                chunks.append(self._chunk(delta, at, end))
        ends = self.sent == self.output_tokens
        if ends and self.include_usage:
            chunks.append({**self.head, "choices": [], "usage": self.usage(self.sent)})
        out = [b"data: " + dump(chunk) + b"\n\n" for chunk in chunks]
        return [*out, b"data: [DONE]\n\n"] if ends else out

    def whole(self) -> bytes:
        """The reply that is not streamed."""
        message = {"role": "assistant", "content": "", **self._delta(0, self.output_tokens)}
        choices = [{"index": 0, "message": message, "finish_reason": self.reason}]
        return dump({**self.head, "choices": choices, "usage": self.usage(self.sent)})
