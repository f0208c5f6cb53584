"""How requests come and what they ask for: new keys in the config, the digest, the order, the forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_config import study_with

from decodelab import config, forecast, orders, plan, workloads, yamlsource
from decodelab.call import Call
from decodelab.forecast import OneRequest, Pace
from decodelab.host_local import LocalHost
from decodelab.mistakes import ConfigError
from decodelab.store import Store
from decodelab.study import Study

REPO = Path(__file__).resolve().parents[2]


def expand(**keys: Any) -> dict[str, Any]:
    return plan.expand(config.fill(study_with(**keys)), REPO)


def point(document: dict[str, Any]) -> dict[str, Any]:
    """What the client is told in the run of the workload `short`."""
    run = next(r for r in document["runs"] if r["workload"] == "short")
    found: dict[str, Any] = document["points"][run["run"]]
    return found


def content(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["scenarios"][point(document)["scenario"]]
    return found


def mistakes(**keys: Any) -> list[str]:
    try:
        config.complete(study_with(**keys), lambda path: "here", REPO, [])
    except ConfigError as error:
        return [m if isinstance(m, str) else m.text() for m in error.mistakes]
    return []


# digests: what is at its default changes nothing

DEFAULTS = {
    "cache": "as_is",
    "thinking": "default",
    "continuous_usage_stats": False,
    "return_token_ids": False,
    "cross_check": False,
}


def test_keys_at_their_defaults_are_not_there() -> None:
    assert expand(**DEFAULTS) == expand()
    assert not set(point(expand())) & set(workloads.OPTIONS)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"rate": 2}, {"rate": 2.0}),
        ({"rate": 2.5, "arrivals": "poisson"}, {"rate": 2.5}),
        ({"rate": 2, "arrivals": "constant"}, {"rate": 2.0, "arrivals": "constant"}),
        ({"cache": "cold"}, {"cache": "cold"}),
        ({"cache": "warm", "warmup": 1}, {"cache": "warm"}),
        ({"min_tokens": 1}, {"min_tokens": 1}),
        ({"continuous_usage_stats": True}, {"continuous_usage_stats": True}),
        ({"return_token_ids": True}, {"return_token_ids": True}),
        ({"cross_check": True}, {"cross_check": True}),
    ],
)
def test_every_other_value_is_measured_anew(keys: dict[str, Any], told: dict[str, Any]) -> None:
    found = point(expand(**keys))
    assert {k: v for k, v in found.items() if k in workloads.OPTIONS} == told
    digests = {la["digest"] for la in expand(**keys)["launches"]}
    assert not digests & {la["digest"] for la in expand()["launches"]}


def test_one_rate_has_one_spelling() -> None:
    assert expand(rate=2, concurrency=3) == expand(rate=2.0, concurrency=3, arrivals="poisson")


# thinking


@pytest.mark.parametrize(
    ("written", "kwargs"),
    [
        ("on", {"enable_thinking": True, "thinking": True}),
        ('"on"', {"enable_thinking": True, "thinking": True}),
        ("true", {"enable_thinking": True, "thinking": True}),
        ("off", {"enable_thinking": False, "thinking": False}),
        ("'off'", {"enable_thinking": False, "thinking": False}),
        ("default", {}),
    ],
)
def test_thinking_however_yaml_reads_it(
    tmp_path: Path, written: str, kwargs: dict[str, bool]
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"thinking: {written}\n")
    given = yamlsource.read(path).data["thinking"]
    assert mistakes(thinking=given) == []
    assert config.fill(study_with(thinking=given))["workloads"]["short"]["thinking"] in (
        "default",
        "on",
        "off",
    )
    assert content(expand(thinking=given))["chat_template_kwargs"] == kwargs


def test_thinking_is_beside_other_template_keys_and_acts_by_the_content() -> None:
    both = expand(thinking="off", chat_template_kwargs={"add_vision_id": False})
    assert content(both)["chat_template_kwargs"] == {
        "add_vision_id": False,
        "enable_thinking": False,
        "thinking": False,
    }
    spelled = expand(chat_template_kwargs={"enable_thinking": False, "thinking": False})
    assert expand(thinking="off") == spelled
    assert mistakes(thinking="off", chat_template_kwargs={"enable_thinking": False}) == []


# made-up prompts


def test_a_prompt_of_so_many_tokens() -> None:
    made = expand(prompt={"tokens": 2048}, thinking="on")
    assert content(made) == {
        "prompt_tokens": 2048,
        "tools": None,
        "tool_choice": None,
        "chat_template_kwargs": {"enable_thinking": True, "thinking": True},
    }
    assert "decode_base_syn2048_c1_t64_r3" in [run["name"] for run in made["runs"]]
    assert content(expand(prompt={"tokens": 2048})) != content(expand(prompt={"tokens": 2049}))
    named = expand(prompt={"tokens": 2048}, scenario="long")
    assert "decode_base_long_c1_t64_r3" in [run["name"] for run in named["runs"]]


def test_a_made_up_prompt_may_carry_tools() -> None:
    made = content(expand(prompt={"tokens": 4096}, tools=29))
    assert len(made["tools"]) == 29 and made["prompt_tokens"] == 4096
    assert mistakes(prompt={"tokens": 4096}, tools=29) == []


@pytest.mark.parametrize(
    ("told", "well"),
    [
        ({"prompt_tokens": 900}, True),
        ({"prompt_tokens": 0}, False),
        ({"prompt_tokens": True}, False),
        ({"prompt_tokens": 900, "messages": [{"role": "user", "content": "x"}]}, False),
        ({}, False),
    ],
)
def test_a_scenario_file_may_hold_a_length(tmp_path: Path, told: Any, well: bool) -> None:
    (tmp_path / "one.json").write_text(json.dumps(told))
    if well:
        assert workloads.read_prompt("one.json", tmp_path)["prompt_tokens"] == 900
    else:
        with pytest.raises(ValueError, match="prompt_tokens"):
            workloads.read_prompt("one.json", tmp_path)


@pytest.mark.parametrize(("tokens", "well"), [(4032, True), (4033, False)])
def test_prompt_and_answer_fit_together(tokens: int, well: bool) -> None:
    data = study_with(prompt={"tokens": tokens})
    data["server"]["flags"]["--max-model-len"] = 4096
    if well:
        config.complete(data, lambda path: "here", REPO, [])
    else:
        with pytest.raises(ConfigError, match="at most 4032 beside max_tokens: 64"):
            config.complete(data, lambda path: "here", REPO, [])


# an open loop


@pytest.mark.parametrize(
    "keys",
    [
        {"rate": 2, "concurrency": 3},
        {"rate": 0.001, "concurrency": 2, "arrivals": "constant"},
        {"rate": 10000, "concurrency": 3},
        {"rate": 1, "requests": 1},
        {"min_tokens": 64, "ignore_eos": False},
        {"cache": "cold", "warmup": 0},
    ],
)
def test_workloads_that_are_well(keys: dict[str, Any]) -> None:
    assert mistakes(**keys) == []


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"arrivals": "constant"}, "no rate"),
        ({"rate": 2}, "1, with which each request waits"),
        ({"rate": 2, "concurrency": [2, 3]}, "a list, but requests come by a rate"),
        ({"rate": 10001, "concurrency": 3}, "at most 10000"),
        ({"cache": "warm", "warmup": 1}, 'but "base" has no prefix cache'),
    ],
)
def test_workloads_that_are_not(keys: dict[str, Any], found: str) -> None:
    assert found in "\n".join(mistakes(**keys))


@pytest.mark.parametrize(
    ("engine", "given", "well"),
    [
        ("vllm-v0", True, True),
        ("vllm-v0", None, False),
        ("vllm-v1", None, True),
        ("vllm-v1", False, False),
        ("other", None, True),
    ],
)
def test_warm_needs_a_prefix_cache(engine: str, given: bool | None, well: bool) -> None:
    data = study_with(cache="warm", warmup=1)
    data["server"]["engine"] = engine
    data["variants"]["fast"] = {"flags": {"--max-num-batched-tokens": 4096}}
    if given is not None:
        data["server"]["flags"]["--enable-prefix-caching"] = given
    if well:
        config.complete(data, lambda path: "here", REPO, [])
    else:
        with pytest.raises(ConfigError, match="no prefix cache"):
            config.complete(data, lambda path: "here", REPO, [])


@pytest.mark.parametrize(
    ("address", "http", "well"),
    [
        ("http://127.0.0.1:8000", "epoll", True),
        ("http://localhost:8000/v1", "epoll", True),
        ("http://[::1]:8000", "epoll", True),
        ("https://127.0.0.1:8000", "epoll", False),
        ("http://10.0.0.7:8000", "epoll", False),
        ("http://[::1:8000", "epoll", False),
        ("https://models.example.org/v1", "epoll", False),
        ("https://models.example.org/v1", "httpx", True),
    ],
)
def test_what_is_far_is_asked_through_httpx(address: str, http: str, well: bool) -> None:
    data = study_with(http=http)
    data["server"] = {"attach": address, "model": "tiny"}
    data["variants"] = {"base": {}}
    data["experiments"]["A"] = {"runs": {"base": ["short"]}}
    del data["workloads"]["curve"]
    if well:
        config.complete(data, lambda path: "here", REPO, [])
    else:
        with pytest.raises(ConfigError, match="write http: httpx"):
            config.complete(data, lambda path: "here", REPO, [])


def test_limit_of_a_run() -> None:
    closed = {"requests": 100, "warmup": 0, "max_tokens": 10}
    assert orders.limit_s(closed, 2.0) == 500 + 120
    # 100 requests at 0.5 a second take 200 s on average; random ones may take longer.
    assert orders.limit_s(closed | {"rate": 0.5}, 2.0) == 620 + 200 + 120


def test_forecast_of_an_open_loop_and_of_a_second_opinion() -> None:
    def seconds(**keys: Any) -> float:
        document = expand(concurrency=3, **keys)
        launch = document["launches"][0]
        run = next(r["run"] for r in document["runs"] if r["workload"] == "short")
        return Pace(0.0, 8.0).launch_s(document, launch, [run])

    assert seconds() == seconds(rate=100) == 3 * 64 / 8
    assert seconds(rate=0.01) == 300.0
    assert seconds(cross_check=True) == 2 * seconds()


def test_forecast_from_one_request() -> None:
    def seconds(**keys: Any) -> tuple[float, float]:
        document = expand(concurrency=3, **keys)
        run = next(r["run"] for r in document["runs"] if r["workload"] == "short")
        return OneRequest(0.0, 1.0, 64.0).launch_s(document, document["launches"][0], [run])

    assert seconds() == (4.0, 6.0)
    assert seconds(rate=0.1) == (32.0, 32.0)
    assert seconds(rate=100) == (4.0, 6.0)
    assert seconds(cross_check=True) == (8.0, 12.0)


def test_an_open_loop_says_nothing_about_the_servers_rate(tmp_path: Path) -> None:
    document = expand(rate=0.01, concurrency=3)
    launch, store = document["launches"][0], Store(tmp_path)
    root = store.start_root(launch["server"], launch["start"])
    facts = {"start_id": "a", "ready_s": 30.0, "stop_s": 10.0, "t_ready": 100.0, "t_stop": 500.0}
    for name in ("start-a", *(f"{run}/a-1" for run in launch["runs"])):
        folder = root / name
        folder.mkdir(parents=True)
        done = {"files": {}, "status": "done", "start_id": "a", "reasons": []}
        (folder / "DONE.json").write_text(json.dumps(done))
        if name == "start-a":
            (folder / "start.json").write_text(json.dumps(facts))
    assert forecast.measured(document, "here", store) == Pace(40.0, 8.0, starts=1)


# the order


def whole_order(tmp_path: Path, **keys: Any) -> dict[str, Any]:
    document = expand(**keys)
    study = Study(tmp_path, "config/small.yaml", {}, document)
    launch = document["launches"][0]["digest"]
    host = LocalHost("here", document["hosts"]["here"], REPO)
    return orders.order(study, launch, host, Store(tmp_path / "raw"), Call())


def order(tmp_path: Path, **keys: Any) -> dict[str, Any]:
    """The order's run of the workload `short`."""
    runs = whole_order(tmp_path, **keys)["runs"]
    found: dict[str, Any] = next(run for run in runs if run["max_tokens"] == 64)
    return found


def test_an_order_tells_the_client_what_is_asked_for(tmp_path: Path) -> None:
    plain = order(tmp_path)
    assert set(plain["client"]) == {"extra_body", "timeout_s", "ignore_eos", "http"}
    told = {
        "rate": 4.0,
        "arrivals": "constant",
        "cache": "cold",
        "min_tokens": 8,
        "continuous_usage_stats": True,
        "return_token_ids": True,
        "cross_check": True,
    }
    made = order(tmp_path, concurrency=3, **told)
    assert made["client"] == {**plain["client"], **told, "arrivals_seed": "0-start1"}
    assert made["limit_s"] == pytest.approx(plain["limit_s"] + (3 + 6 * 3**0.5) / 4.0)


def test_open_loops_of_one_start_share_one_pattern_of_arrivals(tmp_path: Path) -> None:
    """Whatever they ask: a prompt of their own gives the runs unlike seeds."""
    data = study_with(rate=4, concurrency=3)
    both = {"rate": 2, "concurrency": 3, "requests": 3, "max_tokens": 48}
    data["workloads"] |= {
        "long": {**both, "prompt": {"tokens": 512}},
        "other": {**both, "seed": 7},
    }
    data["experiments"]["A"] |= {
        "runs": {"base": ["short", "curve", "long", "other"]},
        "repeats": 2,
    }
    del data["experiments"]["A"]["question"]
    document = plan.expand(config.fill(data), REPO)
    study = Study(tmp_path, "config/small.yaml", {}, document)
    host = LocalHost("here", document["hosts"]["here"], REPO)
    for start, launch in enumerate(document["launches"], start=1):
        made = orders.order(study, launch["digest"], host, Store(tmp_path / "raw"), Call())["runs"]
        assert [run["client"].get("arrivals_seed") for run in made] == [
            f"0-start{start}",
            None,
            None,
            f"0-start{start}",
            f"7-start{start}",
        ]
        assert len({run["seed"] for run in made}) == len(made)


def test_a_launch_lives_long_enough_for_a_second_opinion(tmp_path: Path) -> None:
    def life_s(**keys: Any) -> float:
        return float(whole_order(tmp_path, **keys)["limits"]["life_s"])

    assert life_s(cross_check=True) == life_s() + order(tmp_path)["limit_s"]


def test_an_order_carries_the_length_of_the_prompt(tmp_path: Path) -> None:
    made = order(tmp_path, prompt={"tokens": 512}, thinking="off")["scenario"]
    assert made["name"] == "syn512" and made["prompt_tokens"] == 512 and "messages" not in made
    assert made["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
