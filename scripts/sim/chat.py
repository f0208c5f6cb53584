"""OpenAI chat completions: a request's JSON in; the prompt's text and the reply's JSON events out.

The simulated model thinks, closes with `</think>` and answers. With a reasoning parser its thoughts
are `reasoning_content` and the marker is swallowed; without one everything is `content`.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from sim.params import PARAMS

WORDS = " decode is a loop that adds one token, and each step pays for its own schedule and sync"
SIZE: int = PARAMS["chars_per_token"]


class ApiError(Exception):
    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "object": "error",
            "message": message,
            "type": kind,
            "param": None,
            "code": status,
        }


def render_prompt(data: dict) -> str:
    """Like Qwen's template: tool schemas come inside the first system message, after its text."""
    turns = [(m.get("role"), _text(m.get("content"))) for m in data["messages"]]
    if data.get("tools"):
        if turns[0][0] != "system":
            turns.insert(0, ("system", ""))
        schemas = "\n".join(json.dumps(t, ensure_ascii=False) for t in data["tools"])
        turns[0] = ("system", f"{turns[0][1]}\n\n# Tools\n<tools>\n{schemas}\n</tools>")
    text = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return text + "<|im_start|>assistant\n"


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Chat:
    """One request: what it asks for, and how its reply is written."""

    def __init__(self, body: bytes, config: Any) -> None:
        self.c = config
        data = self._checked(body)
        self.stream, options = bool(data.get("stream")), data.get("stream_options") or {}
        self.include_usage = bool(options.get("include_usage"))
        self.running_usage = self.include_usage and bool(options.get("continuous_usage_stats"))
        self.prompt = render_prompt(data)
        self.prompt_tokens = -(-len(self.prompt) // SIZE)
        self._plan_length(data)
        self.id, self.created = f"chatcmpl-{os.urandom(16).hex()}", int(time.time())
        self.model = data["model"]
        self.sent = self.cached = 0  # output tokens written, prompt tokens found in the cache

    def _checked(self, body: bytes) -> dict:
        try:
            data = json.loads(body)
        except ValueError as e:
            words = f"[{{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': '{e}'}}]"
            raise ApiError(words) from e
        turns = data.get("messages") if isinstance(data, dict) else None
        if not isinstance(turns, list) or not turns or not all(isinstance(m, dict) for m in turns):
            words = "[{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}]"
            raise ApiError(words)
        model, heat = data.setdefault("model", self.c.names[0]), data.get("temperature") or 0
        choice = data.get("tool_choice", "auto" if data.get("tools") else "none")
        if model not in self.c.names:
            raise ApiError(f"The model `{model}` does not exist.", 404, "NotFoundError")
        if data.get("stream_options") and not data.get("stream"):
            raise ApiError("Stream options can only be defined when `stream=True`.")
        if not isinstance(heat, (int, float)) or heat < 0:
            raise ApiError(f"temperature must be non-negative, got {heat}.")
        if choice == "auto" and not self.c.enable_auto_tool_choice:
            needs = "--enable-auto-tool-choice and --tool-call-parser to be set"
            raise ApiError(f'"auto" tool choice requires {needs}')
        if choice not in ("auto", "none") or data.get("n", 1) != 1 or data.get("logprobs"):
            raise ApiError("named or required tool_choice, n > 1 and logprobs are not simulated")
        return data

    def _plan_length(self, data: dict) -> None:
        """How many tokens there will be, and why it ends there."""
        room = self.c.max_model_len - self.prompt_tokens
        limit, least = (
            data.get("max_tokens", data.get("max_completion_tokens")),
            data.get("min_tokens", 0),
        )
        limit = max(1, room) if limit is None else limit
        if not isinstance(limit, int) or limit < 1:
            raise ApiError(f"max_tokens must be at least 1, got {limit}.")
        if least > limit:
            words = "min_tokens must be less than or equal to max_tokens"
            raise ApiError(f"{words}={limit}, got {least}.")
        if limit > room:
            words = (
                f"This model's maximum context length is {self.c.max_model_len} tokens. However, "
            )
            words += f"you requested {self.prompt_tokens + limit} tokens ({self.prompt_tokens} in "
            words += f"the messages, {limit} in the completion). Please reduce the length of the "
            raise ApiError(words + "messages or completion.")
        thinks = (data.get("chat_template_kwargs") or {}).get("enable_thinking", True)
        self.think = PARAMS["think_tokens"] if thinks else -1  # the position of </think>
        natural = max(least, self.think + 1 + PARAMS["answer_tokens"])
        self.reason = "length" if data.get("ignore_eos") or natural > limit else "stop"
        self.output_tokens = limit if self.reason == "length" else natural

    def _text_of(self, n: int) -> dict:
        """The next n tokens as {field: text}; a parser swallows the marker."""
        out: dict = {}
        for i in range(self.sent, self.sent + n):
            name = "reasoning_content" if self.c.reasoning_parser and i < self.think else "content"
            text = WORDS[i * SIZE % len(WORDS) :][:SIZE]
            if i == self.think:
                text = "" if self.c.reasoning_parser else "</think>"
            if text:
                out[name] = out.get(name, "") + text
        self.sent += n
        return out

    def usage(self, details: bool = True) -> dict:
        out: dict = {"prompt_tokens": self.prompt_tokens}
        out["total_tokens"] = self.prompt_tokens + self.sent
        out["completion_tokens"] = self.sent
        if details:
            out["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.c.reasoning_parser:
            thoughts = max(0, min(self.sent, self.think))
            out["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return out

    def events(self, n: int, last: bool) -> list:
        """SSE events of the next n tokens: one each, as 0.6.3 does with multi-step too, or one for
        all when it was told not to stream each step."""
        out = [] if self.sent else [self._event({"role": "assistant", "content": ""}, {})]
        sizes = [1] * n if self.c.multi_step_stream_outputs else [n]
        for j, size in enumerate(sizes):
            delta, ends = self._text_of(size), last and j == len(sizes) - 1
            if delta or ends:
                end = {"finish_reason": self.reason, "stop_reason": None} if ends else {}
                out.append(self._event(delta or {"content": ""}, end))
        if last and self.include_usage:
            out.append(self._data({"choices": [], "usage": self.usage()}))
        return [*out, b"data: [DONE]\n\n"] if last else out

    def _event(self, delta: dict, end: dict) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **end}
        usage = self.usage(details=False) if self.running_usage else None
        return self._data({"choices": [choice], **({"usage": usage} if self.include_usage else {})})

    def _data(self, tail: dict) -> bytes:
        return b"data: " + dump({**self._head("chat.completion.chunk"), **tail}) + b"\n\n"

    def _head(self, kind: str) -> dict:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def whole(self) -> bytes:
        """The reply that is not streamed."""
        message: dict = {"role": "assistant", "content": None, "tool_calls": []}
        message.update(self._text_of(self.output_tokens))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.reason}
        tail = {"choices": [{**choice, "stop_reason": None}], "usage": self.usage()}
        return dump({**self._head("chat.completion"), **tail, "prompt_logprobs": None})
