"""OpenAI chat completions: a request's JSON in; a sequence for the engine and its reply out.

The simulated model thinks, closes with `</think>` and answers. With a reasoning parser its thoughts
are `reasoning_content` and the marker is swallowed; without one everything is `content`.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sim.engine import Sequence

WORDS = ("decode", "pays", "in", "each", "step", "for", "its", "schedule", "and", "sync")
THINK, ANSWER = 512, 160  # tokens; </think> between them, EOS after them (unless ignore_eos)


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def render_prompt(messages: list, tools: list) -> str:
    """Like Qwen's template: tool schemas come inside the first system message, after its text."""
    turns = [(m["role"], m["content"]) for m in messages]
    if tools:
        first = turns.pop(0)[1] if turns[0][0] == "system" else ""
        schemas = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
        turns.insert(0, ("system", f"{first}\n\n# Tools\n<tools>\n{schemas}\n</tools>"))
    text = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return text + "<|im_start|>assistant\n"


class Chat(Sequence):
    """One request: what it asks for, and how its reply is written."""

    def __init__(self, body: bytes, config: Any) -> None:
        data = json.loads(body)  # any exception says what is wrong with the request
        natural, limit = THINK + 1 + ANSWER, data.get("max_tokens")
        limit = natural if limit is None else limit
        self.reason = "length" if data.get("ignore_eos") or limit < natural else "stop"
        prompt = render_prompt(data["messages"], data.get("tools") or [])
        super().__init__(prompt, limit if self.reason == "length" else natural)
        if data["model"] != config.model:
            raise ValueError(f"The model `{data['model']}` does not exist.")
        if not 1 <= limit <= config.max_model_len - self.prompt_tokens:
            asked, longest = self.prompt_tokens + limit, config.max_model_len
            raise ValueError(f"maximum context length is {longest} tokens, requested are {asked}")
        self.parsed, self.stream = bool(config.reasoning_parser), bool(data.get("stream"))
        self.include_usage = bool((data.get("stream_options") or {}).get("include_usage"))
        kind = "chat.completion.chunk" if self.stream else "chat.completion"
        self.head = {"id": f"chatcmpl-{os.urandom(8).hex()}", "object": kind, "model": config.model}
        self.sent = 0

    def _token(self, i: int) -> tuple:
        """(field, text) of the i-th output token."""
        if i == THINK:
            return "content", "" if self.parsed else "</think>"
        field = "reasoning_content" if self.parsed and i < THINK else "content"
        return field, " " + WORDS[i % len(WORDS)]

    def usage(self) -> dict:
        out: dict = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.sent}
        out["total_tokens"] = self.prompt_tokens + self.sent
        out["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.parsed:
            out["completion_tokens_details"] = {"reasoning_tokens": min(self.sent, THINK)}
        return out

    def events(self, n: int) -> list:
        """SSE events of the next n tokens: one each, as 0.6.3 does with multi-step too."""
        choices: list = [] if self.sent else [{"delta": {"role": "assistant", "content": ""}}]
        for i in range(self.sent, self.sent + n):
            field, text = self._token(i)
            reason = self.reason if i + 1 == self.output_tokens else None
            if text or reason:
                choices.append({"delta": {field: text}, "finish_reason": reason})
        chunks: list = [{"choices": [{"index": 0, "finish_reason": None, **c}]} for c in choices]
        self.sent += n
        ends = self.sent == self.output_tokens
        if ends and self.include_usage:
            chunks.append({"choices": [], "usage": self.usage()})
        out = [b"data: " + dump({**self.head, **chunk}) + b"\n\n" for chunk in chunks]
        return [*out, b"data: [DONE]\n\n"] if ends else out

    def whole(self) -> bytes:
        """The reply that is not streamed."""
        message: dict = {"role": "assistant", "content": ""}
        for field, text in map(self._token, range(self.output_tokens)):
            message[field] = message.get(field, "") + text
        choices = [{"index": 0, "message": message, "finish_reason": self.reason}]
        return dump({**self.head, "choices": choices, "usage": self.usage()})
