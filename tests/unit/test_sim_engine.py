"""The simulated engine under a virtual clock: rates, batches, queue, prefix cache, noise."""

from __future__ import annotations

import statistics
from types import SimpleNamespace

import pytest

from sim.engine import Engine, Sequence, Step
from sim.metrics import Metrics
from sim.params import PARAMS

QUIET = {**PARAMS, "step_jitter": 0.0, "start_jitter": 0.0}
FLAGS = {
    "tensor_parallel_size": 4,
    "max_num_seqs": 2,
    "max_num_batched_tokens": 8192,
    "num_scheduler_steps": 1,
    "chunked": False,
    "enable_prefix_caching": True,
}


def engine(params: dict = QUIET, blocks: int = 10000, seed: int = 1, **flags: object) -> Engine:
    return Engine(SimpleNamespace(**{**FLAGS, **flags}), blocks, seed, params)


def begin(e: Engine, now: float = 0.0) -> Step:
    step = e.begin(now)
    assert step is not None
    return step


def request(tokens: int = 128, prompt: str = "p" * 400) -> Sequence:
    return Sequence(prompt, -(-len(prompt) // PARAMS["chars_per_token"]), tokens)


def run(e: Engine, *seqs: Sequence, metrics: Metrics | None = None, limit: int = 20000) -> list:
    """Runs until idle; events [(time, sequence, tokens)]. All requests arrive at 0."""
    now = 0.0
    events: list = []
    metrics = metrics or Metrics("m")
    for seq in seqs:
        e.add(seq, now)
    for _ in range(limit):
        step = e.begin(now)
        if step is None:
            return events
        now += step.seconds
        for seq, n in e.finish(step):
            metrics.tokens(seq, n, now)
            if seq.generated >= seq.output_tokens:
                metrics.done(seq, "length")
            events.append((now, seq, n))
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
    begin(e)
    assert (len(e.running), len(e.waiting)) == (2, 3)
    seqs = [request() for _ in range(5)]
    run(engine(), *seqs)
    starts = [s.admitted_s for s in seqs]
    assert starts == sorted(starts)
    assert starts[1] == 0 and starts[2] >= min(s.last_s for s in seqs[:2])
    # The waiting ones slow the running ones, as on the reference host.
    assert rate(seqs[0]) < 0.9 * rate(seqs[-1])


def test_a_request_that_does_not_fit_the_kv_cache_waits_and_blocks_the_queue():
    big, small = request(1000), request(10)
    e = engine(blocks=100, max_num_seqs=8)
    run(e, request(800), big, small)
    assert big.admitted_s > 0 and small.admitted_s >= big.admitted_s
    assert e.usage() == 0


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
    assert (e.queried, e.hit) == (40 * 3 + 32, 32 + 16)
    assert again.first_s - again.admitted_s < first.first_s - first.admitted_s


def test_prefix_cache_off_and_bounded():
    e = engine(enable_prefix_caching=False)
    seqs = [request(4), request(4)]
    for seq in seqs:
        run(e, seq)
    assert [s.cached for s in seqs] == [0, 0] and not e.cache and e.queried == 0
    e = engine(blocks=20)
    for i in range(5):
        run(e, request(4, f"{i}" * 400))
    assert len(e.cache) == 20
    run(e, seq := request(4, "4" * 400))
    assert seq.cached > 0  # the latest is kept


def test_long_prompts_stall_decoding_without_chunks_and_ride_along_with_them():
    long = "q" * 4 * 6000
    for chunked in (False, True):
        e = engine(chunked=chunked, max_num_batched_tokens=8192 if not chunked else 1024)
        decoding, late = request(200), request(4, long)
        e.add(decoding, 0.0)
        e.finish(begin(e))
        e.add(late, 0.1)
        step = begin(e, 0.1)
        assert [n for _, n in step.prefill] == ([1023] if chunked else [6000])
        assert step.decode == ([decoding] if chunked else [])
        steps = 1
        e.finish(step)
        while not late.generated:
            e.finish(begin(e, 0.2))
            steps += 1
        assert steps == (6 if chunked else 1)
        assert late.computed == late.prompt_tokens


def test_abort_frees_the_place_at_once_and_the_step_under_way_gives_nothing():
    e = engine(max_num_seqs=1)
    gone, waiting, next_one = request(), request(), request(3)
    for seq in (gone, waiting, next_one):
        e.add(seq, 0.0)
    step = begin(e)
    e.abort(gone)
    e.abort(waiting)
    assert e.finish(step) == []
    run(e)
    assert next_one.generated == 3 and gone.generated == waiting.generated == 0
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
    a, b = request(), request()
    e.add(a, 0.0)
    e.add(b, 0.0)
    prefill = begin(e)
    e.finish(prefill)
    decode = begin(e)
    assert decode.busy == pytest.approx(0.289, abs=0.01) and prefill.busy > 0.8


def test_metrics_agree_with_the_run():
    e, m = engine(), Metrics('a "b"')
    seqs = [request(33) for _ in range(3)]
    for seq in seqs[:2]:
        e.add(seq, 0.0)
    run(e, seqs[2], metrics=m)
    page = m.render(e)
    values = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name.replace('model_name="a \\"b\\""', "M")] = float(value)
    assert values["vllm:generation_tokens_total{M}"] == 99
    assert values["vllm:prompt_tokens_total{M}"] == 300
    assert values["vllm:num_requests_running{M}"] == values["vllm:num_requests_waiting{M}"] == 0
    assert values['vllm:request_success_total{finished_reason="length",M}'] == 3
    assert values["vllm:time_to_first_token_seconds_count{M}"] == 3
    ttft = sum(s.first_s - s.arrived_s for s in seqs)
    assert values["vllm:time_to_first_token_seconds_sum{M}"] == pytest.approx(ttft)
    queue = seqs[2].admitted_s
    assert queue > 0.1
    assert values["vllm:request_queue_time_seconds_sum{M}"] == pytest.approx(queue)
    assert values["vllm:inter_token_latency_seconds_count{M}"] == 3 * 32
    decode = sum(s.last_s - s.first_s for s in seqs)
    assert values["vllm:inter_token_latency_seconds_sum{M}"] == pytest.approx(decode)
    assert values["vllm:request_decode_time_seconds_sum{M}"] == pytest.approx(decode)
    assert values["vllm:prompt_tokens_cached_total{M}"] == e.hit
    below = [
        v for k, v in values.items() if k.startswith("vllm:e2e_request_latency_seconds_bucket")
    ]
    assert below == sorted(below) and below[-1] == 3
