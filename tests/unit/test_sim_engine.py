"""The simulated engine under a virtual clock: rates, batches, queue, prefix cache, noise."""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from types import SimpleNamespace

import pytest

from sim.core import EngineCore
from sim.engine import PARAMS, Engine, Sequence
from sim.parts import LAYERS, Pace, shares
from sim.worker import Attention, Communicator, FusedMoE, Order, Worker

QUIET = {**PARAMS, "step_jitter": 0.0, "start_jitter": 0.0}
FLAGS = {
    "tensor_parallel_size": 4,
    "max_num_seqs": 2,
    "max_num_batched_tokens": 8192,
    "num_scheduler_steps": 1,
    "chunked": False,
    "enable_prefix_caching": True,
}


def engine(params: dict = QUIET, seed: int = 1, **flags: object) -> Engine:
    return Engine(SimpleNamespace(**{**FLAGS, **flags}), seed, params)


def request(tokens: int = 128, prompt: str = "p" * 400) -> Sequence:
    return Sequence(prompt, tokens)


def run(e: Engine, *seqs: Sequence, limit: int = 20000) -> list:
    """Runs until idle; events [(time, sequence, tokens)]. All requests arrive at 0."""
    now = 0.0
    events: list = []
    for seq in seqs:
        e.add(seq, now)
    for _ in range(limit):
        seconds, _, tokens = e.step(now)
        if not tokens:
            return events
        now += seconds
        events += [(now, seq, n) for seq, n in tokens]
    raise AssertionError("the engine does not come to rest")


def rate(seq: Sequence) -> float:
    return (seq.generated - 1) / (seq.last_s - seq.first_s)


def test_single_stream_rate_is_the_tables():
    seq = request()
    events = run(engine(), seq)
    per_token = 0.55 + 0.35 + 2 * 0.30 + 1.20 + 2.40 / 4
    assert rate(seq) == pytest.approx(1000 / per_token)
    assert 200 < rate(seq) < 400
    assert [n for _, _, n in events] == [1] * 128


def test_a_batch_of_two_brings_no_total_gain_and_four_no_more():
    one = request()
    run(engine(), one)
    for n in (2, 4):
        seqs = [request() for _ in range(n)]
        run(engine(max_num_seqs=n), *seqs)
        assert 0.8 < sum(map(rate, seqs)) / rate(one) < 1.05


def test_multi_step_is_faster_and_comes_in_bursts():
    plain, burst = request(257), request(257)
    run(engine(), plain)
    events = run(engine(num_scheduler_steps=4), burst)
    assert [n for _, _, n in events] == [1] + [4] * 64
    assert 1.2 < rate(burst) / rate(plain) < 1.35


def test_a_burst_past_the_end_costs_its_time_and_gives_no_token():
    whole, cut = request(1 + 8), request(1 + 6)
    run(engine(num_scheduler_steps=4), whole)
    events = run(engine(num_scheduler_steps=4), cut)
    assert [n for _, _, n in events] == [1, 4, 2] and cut.generated == 7
    assert cut.last_s == pytest.approx(whole.last_s)


def test_chunked_prefill_has_a_small_effect_on_decode():
    on, off = request(), request()
    run(engine(chunked=True), on)
    run(engine(), off)
    assert 0.97 < rate(on) / rate(off) < 1.0


def test_queue_is_first_in_first_out_at_max_num_seqs():
    seqs = [request() for _ in range(5)]
    e = engine()
    for seq in seqs:
        e.add(seq, 0.0)
    e.step(0.0)
    assert (len(e.running), len(e.waiting)) == (2, 3)
    seqs = [request() for _ in range(5)]
    run(engine(), *seqs)
    starts = [s.admitted_s for s in seqs]
    assert starts == sorted(starts)
    assert starts[1] == 0 and starts[2] >= min(s.last_s for s in seqs[:2])
    # The waiting ones slow the running ones, as on the reference host.
    assert rate(seqs[0]) < 0.9 * rate(seqs[-1])


def test_prefix_cache_hits_whole_blocks_but_never_the_last_token():
    e = engine()
    prompt = "".join(f"{i:04d}" for i in range(40))  # 40 tokens: two blocks and a half
    first, again, other = request(4, prompt), request(4, prompt), request(4, "x" + prompt[1:])
    for seq in (first, again, other):
        run(e, seq)
    assert (first.cached, again.cached, other.cached) == (0, 32, 0)
    even = prompt[: 32 * 4]
    run(e, seq := request(4, even))
    assert seq.cached == 16  # the second block holds the last token
    assert again.first_s - again.admitted_s < first.first_s - first.admitted_s


def test_a_block_is_cached_only_behind_the_same_beginning():
    e = engine()
    same = "s" * 64
    run(e, request(4, "a" * 64 + same * 3), request(4, "b" * 64 + same * 3))
    run(e, seq := request(4, "c" * 64 + same * 3))
    assert seq.cached == 0, "equal blocks, but behind another first one"
    run(e, seq := request(4, "a" * 64 + same + "d" * 64))
    assert seq.cached == 32


def test_prefix_cache_off():
    e = engine(enable_prefix_caching=False)
    seqs = [request(4), request(4)]
    for seq in seqs:
        run(e, seq)
    assert [s.cached for s in seqs] == [0, 0] and not e.cache


def test_prompts_stall_decoding_without_chunks_and_ride_along_with_them():
    for chunked in (False, True):
        e = engine(chunked=chunked)
        decoding, late = request(200), request(4, "q" * 4 * 6000)
        e.add(decoding, 0.0)
        e.step(0.0)
        e.add(late, 0.1)
        seconds, _, tokens = e.step(0.1)
        assert tokens == ([(decoding, 1), (late, 1)] if chunked else [(late, 1)])
        assert seconds == pytest.approx(0.62, abs=0.01)


def test_a_step_takes_prompts_up_to_its_token_budget_and_at_least_one():
    seqs = [request(2, f"{i}" * 4000) for i in range(4)]
    e = engine(max_num_seqs=4, max_num_batched_tokens=2500)
    for seq in seqs:
        e.add(seq, 0.0)
    assert [seq for seq, _ in e.step(0.0)[2]] == seqs[:2]
    run(e)
    huge = request(2, "h" * 12000)
    run(e, huge)
    assert huge.generated == 2


def test_abort_frees_the_place_at_once():
    e = engine(max_num_seqs=1)
    gone, waiting, next_one = request(), request(), request(3)
    for seq in (gone, waiting, next_one):
        e.add(seq, 0.0)
    e.step(0.0)
    e.abort(gone)
    e.abort(waiting)
    run(e)
    assert (gone.generated, waiting.generated, next_one.generated) == (1, 0, 3)
    assert not e.running and not e.waiting


def test_noise_is_seeded_small_within_a_start_and_real_across_starts():
    def rates(seed: int) -> list:
        e = engine(PARAMS, seed=seed)
        seqs = [request() for _ in range(8)]
        for seq in seqs:
            run(e, seq)
        return [rate(s) for s in seqs]

    assert rates(5) == rates(5) != rates(6)
    within = statistics.mean(
        statistics.stdev(r) / statistics.mean(r) for r in map(rates, range(20))
    )
    assert 0.001 < within < 0.005
    factors = [engine(PARAMS, seed=s).start_factor for s in range(300)]
    assert 0.008 < statistics.stdev(factors) < 0.016
    assert max(abs(f - 1) for f in factors) <= 0.0251


def test_busy_share_is_low_in_decode_high_in_prefill():
    e = engine()
    for seq in (request(), request()):
        e.add(seq, 0.0)
    _, prefill, _ = e.step(0.0)
    _, decode, _ = e.step(0.1)
    assert decode == pytest.approx(0.289, abs=0.01) and prefill > 0.8


def test_metrics_agree_with_the_run():
    e = engine()
    seqs = [request(33) for _ in range(3)]
    run(e, *seqs)
    page = e.metrics('a "b"')
    values = {}
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        values[name.replace('model_name="a \\"b\\""', "M")] = float(value)
    assert values["vllm:generation_tokens_total{M}"] == 99
    assert values["vllm:prompt_tokens_total{M}"] == 300
    assert values["vllm:num_requests_running{M}"] == values["vllm:num_requests_waiting{M}"] == 0
    assert values["vllm:num_preemptions_total{M}"] == 0
    assert values["vllm:prefix_cache_queries_total{M}"] == 300
    assert values["vllm:prefix_cache_hits_total{M}"] == sum(s.cached for s in seqs) > 0
    sums = {
        "time_to_first_token": (3, sum(s.first_s - s.arrived_s for s in seqs)),
        "request_queue_time": (3, seqs[2].admitted_s),
        "time_per_output_token": (3 * 32, sum(s.last_s - s.first_s for s in seqs)),
        "e2e_request_latency": (3, sum(s.last_s - s.arrived_s for s in seqs)),
    }
    assert seqs[2].admitted_s > 0.1
    for name, (count, total) in sums.items():
        assert values[f"vllm:{name}_seconds_count{{M}}"] == count
        assert values[f'vllm:{name}_seconds_bucket{{le="+Inf",M}}'] == count
        assert values[f"vllm:{name}_seconds_sum{{M}}"] == pytest.approx(total)


def test_the_steps_are_bit_for_bit_those_of_the_engine_without_parts():
    def told(seed: int) -> str:
        flags = {"max_num_seqs": 2 + seed, "num_scheduler_steps": 1 + 3 * (seed % 2)}
        e = engine(PARAMS, seed, **flags, chunked=bool(seed % 3))
        for n in range(5):
            e.add(request(40 + n, "p" * 400 * (n + 1)), 0.0)
        now, said = 0.0, []
        while (step := e.step(now))[2]:
            seconds, busy, tokens = step
            now += seconds
            said.append((seconds.hex(), busy.hex() if busy else "0", [n for _, n in tokens]))
        return hashlib.sha256(repr(said).encode()).hexdigest()[:16]

    known = ["a913e100f19efa6c", "aaeb2b30b772bd11", "0f33523c5cb19046", "e7a9f7f1e2e77416"]
    assert [told(seed) for seed in range(4)] == known


@pytest.mark.parametrize("steps", [1, 4])
def test_the_parts_of_a_step_are_its_whole_cost(steps: int):
    e = engine(num_scheduler_steps=steps, chunked=True)
    for seq in (request(), request(), request(200)):
        e.add(seq, 0.0)
    for _ in range(5):
        seconds, _, _ = e.step(0.0)
        assert e.terms is not None
        assert sum(shares(e.terms).values()) == pytest.approx(1000 * seconds)
        assert min(shares(e.terms).values()) >= 0


def test_a_worker_goes_through_every_layer_once_a_token(monkeypatch: pytest.MonkeyPatch):
    seen: list = []
    for kind, name in ((Attention, "forward"), (FusedMoE, "forward"), (Communicator, "all_reduce")):
        method = getattr(kind, name)

        async def counted(self: object, order: Order, method: object = method) -> None:
            seen.append(type(self).__name__)
            await method(self, order)  # type: ignore[operator]

        monkeypatch.setattr(kind, name, counted)
    e = engine(num_scheduler_steps=4)
    seq = request(9)
    seq.gone, seq.tokens = (lambda: False), asyncio.Queue()
    e.add(seq, time.monotonic())

    async def all_steps() -> None:
        core = EngineCore(e.c, e)
        while await core.step():
            pass

    asyncio.run(all_steps())
    forwards = 1 + 8  # the prompt's, then two bursts of four
    assert [seen.count(k) for k in ("Attention", "FusedMoE", "Communicator")] == [
        forwards * LAYERS,
        forwards * LAYERS,
        forwards * 2 * LAYERS,
    ]
    assert seq.tokens.qsize() == 3


def test_an_order_says_its_phase():
    e = engine(chunked=True)
    first, late = request(), request(4)
    e.add(first, 0.0)
    said = []
    for _ in range(3):
        seconds, _, handed = e.step(0.0)
        assert e.terms is not None
        pace = Pace(0.0, seconds, e.terms)
        order = Order(pace, len(handed) - len(e.prompts), e.prompts, e.terms.worker_steps)
        said.append((order.phase, order.reqs, order.tokens))
        if len(said) == 1:
            e.add(late, 0.0)
    assert said == [("prefill", 1, 100), ("mixed", 2, 1 + 100 - late.cached), ("decode", 2, 2)]


def test_the_worker_tells_its_model():
    runner = Worker(engine().c).runner
    assert runner.model_config.hf_text_config.to_dict()["num_hidden_layers"] == LAYERS >= 2
    assert (runner.model.start_layer, runner.model.end_layer) == (0, LAYERS)
    kinds = [type(module) for _, module in runner.model.named_modules()]
    assert kinds.count(Attention) == kinds.count(FusedMoE) == LAYERS
