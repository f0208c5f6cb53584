"""OpenAI chat completions: a request's JSON in; a sequence for the engine and its reply out.

The simulated model thinks, closes with `</think>` and answers. With a reasoning parser its thoughts
are `reasoning_content` and the marker is swallowed; without one everything is `content`.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sim.engine import PARAMS, Sequence

WORDS = " decode is a loop that adds one token, and each step pays for its own schedule and sync"
SIZE: int = PARAMS["chars_per_token"]


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
        """Any exception says what is wrong with the request."""
        data = json.loads(body)
        prompt = render_prompt(data["messages"], data.get("tools") or [])
        self.parsed, self.sent = bool(config.reasoning_parser), 0
        self.stream = bool(data.get("stream"))
        self.include_usage = bool((data.get("stream_options") or {}).get("include_usage"))
        thinks = (data.get("chat_template_kwargs") or {}).get("enable_thinking", True)
        self.think = PARAMS["think_tokens"] if thinks else -1  # the position of </think>
        natural = self.think + 1 + PARAMS["answer_tokens"]
        limit = data.get("max_tokens", natural)
        self.reason = "length" if data.get("ignore_eos") or natural > limit else "stop"
        super().__init__(prompt, limit if self.reason == "length" else natural)
        self.head = {"id": f"chatcmpl-{os.urandom(16).hex()}", "model": data["model"]}
        longest = config.max_model_len
        if data["model"] != config.model:
            raise ValueError(f"The model `{data['model']}` does not exist.")
        if not 1 <= limit <= longest - self.prompt_tokens:
            words = f"This model's maximum context length is {longest} tokens. However, you "
            words += f"requested {self.prompt_tokens + limit} tokens ({self.prompt_tokens} in the "
            raise ValueError(f"{words}messages, {limit} in the completion).")

    def _token(self, i: int) -> tuple:
        """(field, text) of the i-th output token."""
        if i == self.think:
            return "content", "" if self.parsed else "</think>"
        text = WORDS[i * SIZE % len(WORDS) :][:SIZE]
        return "reasoning_content" if self.parsed and i < self.think else "content", text

    def usage(self) -> dict:
        out: dict = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.sent}
        out["total_tokens"] = self.prompt_tokens + self.sent
        out["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.parsed:
            thoughts = max(0, min(self.sent, self.think))
            out["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return out

    def events(self, n: int) -> list:
        """SSE events of the next n tokens: one each, as 0.6.3 does with multi-step too."""
        out = [] if self.sent else [self._event({"role": "assistant", "content": ""})]
        for i in range(self.sent, self.sent + n):
            field, text = self._token(i)
            reason = self.reason if i + 1 == self.output_tokens else None
            if text or reason:
                out.append(self._event({field: text}, reason))
        self.sent += n
        if self.sent < self.output_tokens:
            return out
        usage = [self._data(choices=[], usage=self.usage())] if self.include_usage else []
        return [*out, *usage, b"data: [DONE]\n\n"]

    def _event(self, delta: dict, reason: Any = None) -> bytes:
        return self._data(choices=[{"index": 0, "delta": delta, "finish_reason": reason}])

    def _data(self, **tail: Any) -> bytes:
        return b"data: " + dump({**self.head, "object": "chat.completion.chunk", **tail}) + b"\n\n"

    def whole(self) -> bytes:
        """The reply that is not streamed."""
        message: dict = {"role": "assistant", "content": ""}
        for field, text in map(self._token, range(self.output_tokens)):
            message[field] = message.get(field, "") + text
        choices = [{"index": 0, "message": message, "finish_reason": self.reason}]
        tail = {"object": "chat.completion", "choices": choices, "usage": self.usage()}
        return dump({**self.head, **tail})
