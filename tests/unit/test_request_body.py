"""What a request says: salt, cache states, options, and the digest of what was asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cargo import scenario
from cargo.exchange import Exchange
from cargo.request_body import Bodies, Options, request_json

SHORT = scenario.load("short")


def messages(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body)["messages"]
    return found


def bodies(cache: str, seed: str = "1", asked: dict[str, Any] = SHORT) -> Bodies:
    return Bodies(asked, "m", seed, cache, Options(8))


def test_the_salt_opens_the_prompt_and_has_one_length() -> None:
    made = [bodies("as_is", seed)(Exchange(0, False)) for seed in ("1", "2", "1", "run-" * 50)]
    first = [messages(body)[0] for body in made]
    assert [message["role"] for message in first] == ["system"] * 4
    assert first[0] == first[2] != first[1]
    assert len({len(message["content"]) for message in first}) == 1
    assert messages(made[0])[1:] == SHORT["messages"]


def test_the_salt_goes_before_a_system_message_of_the_scenario() -> None:
    message = {"role": "system", "content": "Be brief."}
    found = messages(bodies("as_is", asked={"messages": [message]})(Exchange(0, False)))
    assert len(found) == 1
    assert found[0]["content"] == scenario.salt("1") + "\nBe brief."
    assert message["content"] == "Be brief."


@pytest.mark.parametrize("cache", ["as_is", "warm"])
def test_one_prompt_for_all_requests_of_a_run(cache: str) -> None:
    body_of = bodies(cache)
    exchanges = [Exchange(0, True), Exchange(0, False), Exchange(1, False)]
    assert len({body_of(one) for one in exchanges}) == 1


def test_cold_gives_each_request_a_salt_of_its_own_before_everything_else() -> None:
    tool = scenario.load("tool")
    body_of = bodies("cold", asked=tool)
    exchanges = [Exchange(n, warmup) for warmup in (True, False) for n in range(50)]
    made = [body_of(one) for one in exchanges]
    salts = [messages(body)[0]["content"] for body in made]
    assert len(set(salts)) == 100
    assert {len(line) for line in salts} == {len(scenario.salt("1"))}
    rest = {json.dumps({**json.loads(body), "messages": messages(body)[1:]}) for body in made}
    assert len(rest) == 1, "nothing but the salt differs"
    # paired arms: the same run at the same start number is asked the same, whatever the variant
    again = bodies("cold", asked=tool)
    assert [again(one) for one in exchanges] == made
    assert bodies("cold", "2", tool)(exchanges[0]) != made[0]


def test_a_prompt_that_holds_the_salts_own_text_is_left_alone() -> None:
    line = scenario.salt("1")
    asked = {"messages": [{"role": "user", "content": f"Say {line}"}]}
    found = messages(bodies("cold", asked=asked)(Exchange(0, False)))
    assert found[0]["content"] != line
    assert found[1]["content"] == f"Say {line}"


def test_keys_of_the_body() -> None:
    tool = {
        **scenario.load("tool"),
        "tool_choice": "none",
        "chat_template_kwargs": {"a": False},
    }
    body = json.loads(request_json(tool, "m", "s", Options(8, ignore_eos=False)))
    assert len(body["tools"]) == 29
    assert body["tool_choice"] == "none"
    assert body["chat_template_kwargs"] == {"a": False}
    assert "ignore_eos" not in body
    body = json.loads(request_json(SHORT, "m", "s", Options(8)))
    never_asked = {"tools", "tool_choice", "chat_template_kwargs", "min_tokens", "return_token_ids"}
    assert not never_asked & set(body)
    assert body["stream_options"] == {"include_usage": True}


def test_options_of_the_body() -> None:
    extra = {"stream_options": {"other": 1}, "top_p": 0.5}
    options = Options(8, 4, 0.5, True, True, True, extra)
    body = json.loads(request_json(SHORT, "m", "s", options))
    wanted = {"other": 1, "include_usage": True, "continuous_usage_stats": True}
    assert body["stream_options"] == wanted
    assert (body["max_tokens"], body["min_tokens"], body["top_p"]) == (8, 4, 0.5)
    assert body["return_token_ids"] is True
    assert extra == {"stream_options": {"other": 1}, "top_p": 0.5}


def test_the_digest_is_of_what_was_asked_and_not_of_the_salt() -> None:
    tool = scenario.load("tool")
    assert scenario.digest(SHORT) == scenario.digest(dict(SHORT, name="other"))
    assert scenario.digest(SHORT) != scenario.digest(tool)
    fewer = dict(tool, tools=tool["tools"][:28])
    assert scenario.digest(fewer) != scenario.digest(tool)
    thinking = dict(SHORT, chat_template_kwargs={"enable_thinking": False})
    assert scenario.digest(thinking) != scenario.digest(SHORT)
