"""What `scripts/bench` makes of what it measured: the legs `limit` and `latency`, `families`, `fill`, and the soak."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, pairwise, repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.records import Partition, RawRecord, Ticket, Window
from tools import MINILM
from tools.bench.bench import Bench
from tools.bench.families import BERT, SHAPES
from tools.bench.fill import Cost, Device, Filled, Turn, measure, outcome
from tools.bench.gpu.checkpoints import write_labelled
from tools.bench.legs.latency import WARM_UP_S, Traffic
from tools.bench.legs.limit import Case, Result, ThreadTime, _batches
from tools.bench.load import poisson
from tools.bench.runs import AGAIN, Load, Run, Spread, interleave, others, p99, percentile, rates, ratios
from tools.bench.watching import Call, Moment, WatchedCounters, Work
from tools.kafka import Cluster
from tools.soak import growth, is_flat


def window(length: int) -> Window:
    """A window of this length, of an empty record."""
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0)
    return Window(ticket, np.zeros(length, np.int32), 0, 0, length, 0, 0.0)


def test_the_time_of_the_threads_is_told_apart_without_rest() -> None:
    """Two threads for 10 s: one works from 1 to 9 with a gap of 2; the other from 0 to 10."""
    calls = [Call(1, 1.0, 4.0, 2.0), Call(1, 6.0, 9.0, 3.0), Call(2, 0.0, 10.0, 10.0)]
    times = ThreadTime.of(calls, 2, 10.0)
    assert ThreadTime(running=16.0, between=2.0, start_and_end=2.0) == times


def test_a_bare_batch_is_as_full_as_its_longest_window_allows() -> None:
    """Batches hold neighbours in length; a window longer than a batch goes alone; no window is lost."""
    windows = [window(length) for length in (600, 128, 128, 100, 100, 20)]
    batches = _batches(windows, 512)
    assert [[600], [128, 128, 100, 100], [20]] == [[each.length_tokens for each in b.windows] for b in batches]


def test_broker_and_start_and_end_are_counted_apart() -> None:
    """A worker at 0.9 of the bare rate uses all that is left if the broker takes a tenth of the cores."""
    cores = available_cores()
    counters = WatchedCounters(tuple)
    counters.began, counters.ended = Moment(0.0, 0.0, 0.0, 0.0), Moment(10.0, 0.0, 0.0, cores * 1.0)
    work = Work(counters, (), (), Load(10.0, 0.0, 0.0))
    always = ThreadTime(running=20.0, between=0.0, start_and_end=0.0)
    mostly = ThreadTime(running=18.0, between=1.0, start_and_end=1.0)
    bare = Run(20.0, work.load, {"threads": always})
    worker = Run(18.0, work.load, {"threads": mostly, "work": work})
    result = Result(Case("fp32", None, 512, (), ()), [bare], [worker])  # type: ignore[arg-type]
    assert result.efficiency().median == pytest.approx(0.9)
    assert result.efficiency(without_broker=True).median == pytest.approx(1.0)
    assert result.efficiency(without_ends=True).median == pytest.approx(0.9 / 0.95), (
        "a thread in 20 was idle at the ends"
    )


def test_disturbed_runs_prove_nothing() -> None:
    """A claim cannot hold on disturbed runs, however good its figure is."""
    counters = WatchedCounters(tuple)
    counters.ended = Moment(10.0, 0.0, 0.0, 0.0)
    quiet, noisy = Load(10.0, 0.0, 0.0), Load(10.0, 0.0, 1.0)
    model = SimpleNamespace(card=SimpleNamespace(precision="fp32"))
    case = Case("fp32", model, 512, (), ())  # type: ignore[arg-type]
    times = ThreadTime(running=20.0, between=0.0, start_and_end=0.0)
    worker = Run(20.0, quiet, {"threads": times, "work": Work(counters, (), (), quiet)})
    undisturbed, disturbed = (Run(20.0, load, {"threads": times}) for load in (quiet, noisy))
    assert Result(case, [undisturbed], [worker]).claim().held
    assert not Result(case, [disturbed], [worker]).claim().held
    assert "disturbed" in Result(case, [disturbed], [worker]).claim().text


def test_pauses_between_arrivals_vary_as_those_of_independent_publishers() -> None:
    """Exponential: the standard deviation equals the mean. Even pauses would have none, and would flatter the latency."""
    times_s = poisson(100, 100, seed=3)
    pauses = [late - early for early, late in pairwise(times_s)]
    assert statistics.mean(pauses) == pytest.approx(statistics.pstdev(pauses), rel=0.1)
    assert 10_000 == pytest.approx(len(times_s), abs=500), "the rate is met, give or take five standard deviations"
    assert times_s == poisson(100, 100, seed=3) != poisson(100, 100, seed=2)


def test_percentiles_are_values_that_were_seen() -> None:
    """Percentiles use the nearest rank; with few values the 99th would only be the maximum, so there is none."""
    values = [float(number) for number in range(100, 0, -1)]
    assert (1, 50, 90, 99, 100) == tuple(percentile(values, share) for share in (0, 0.5, 0.9, 0.99, 1))
    assert p99([1.0] * 99) is None
    assert 2.0 == p99([1.0] * 98 + [2.0, 2.0])


@pytest.mark.parametrize("rate_per_s", [0.001, 20.0])
def test_the_first_seconds_of_a_run_do_not_count(rate_per_s: float) -> None:
    """What counts begins with the first article after them, and there is always one."""
    traffic = Traffic.at("headlines", rate_per_s, 3.0, seed=1)
    assert traffic.due_s[traffic.first_counted] >= WARM_UP_S
    assert all(due_s < WARM_UP_S for due_s in traffic.due_s[: traffic.first_counted])
    assert len(traffic.values) == len(traffic.due_s)


def run(rate: float, others_cores: float = 0.0) -> Run:
    """A run of one second."""
    return Run(rate, Load(1.0, 0.0, others_cores))


def giving(*runs: Run) -> Callable[[], Run]:
    """A contender that returns these runs, the last one forever."""
    each = chain(runs, repeat(runs[-1]))
    return lambda: next(each)


def test_contenders_take_turns() -> None:
    """Contenders alternate, so background load affects all of them."""
    order: list[str] = []

    def contender(name: str) -> Callable[[], Run]:
        def contend() -> Run:
            order.append(name)
            return run(1.0)

        return contend

    interleave({"a": contender("a"), "b": contender("b")}, 3, lambda _: None)
    assert order == ["a", "b"] * 3


def test_a_disturbed_run_is_done_again_and_the_quietest_counts() -> None:
    """A disturbed run is repeated within a bound; then the quietest counts."""
    runs = interleave({"a": giving(run(1.0, 0.9), run(2.0, 0.5), run(3.0))}, 2, lambda _: None)["a"]
    assert [each.rate for each in runs] == [3.0, 3.0]
    noisy = [run(float(number), 1.0 - number / 10) for number in range(AGAIN + 2)]
    (kept, _) = interleave({"a": giving(*noisy)}, 2, lambda _: None)["a"]
    assert kept.rate == AGAIN


def test_ratios_are_taken_repetition_by_repetition() -> None:
    """Ratios compare runs of the same repetition, so a slow phase of the machine cancels out."""
    fast, slow = [run(4.0), run(2.0), run(8.0)], [run(2.0), run(1.0), run(2.0)]
    assert Spread(2.0, 2.0, 4.0) == ratios(fast, slow)
    assert Spread(4.0, 2.0, 8.0) == rates(fast)
    assert others([run(1.0, 0.1), run(1.0, 0.2)]) == 0.2


@pytest.mark.parametrize("sizes", [[100, 130, 90] * 20, [*[100] * 99, 500]], ids=["up and down", "one high sample"])
def test_memory_that_does_not_stay_higher_is_flat(sizes: list[float]) -> None:
    """Buffers come and go; medians are compared."""
    assert is_flat(sizes)


def test_a_leak_is_found() -> None:
    """Negative control: growth of a thousandth per sample is detected."""
    sizes = [1_000.0 + index for index in range(100)]
    assert not is_flat(sizes)
    assert 1_090 < growth(sizes)[1] < 1_100


@pytest.mark.parametrize("family", SHAPES)
def test_each_family_has_as_many_weights_in_its_layers_as_bert(family: str, tmp_path: Path) -> None:
    """And a graph of ours; a single layer is enough to see it."""
    folder = write_labelled(tmp_path / family, replace(SHAPES[family], num_hidden_layers=1), MINILM)
    with Path(os.devnull).open("wb") as nowhere:
        build([Checkpoint.open(folder)], PaddedFloat32(), OnnxWriter(nowhere, os.devnull))
    with safe_open(folder / "model.safetensors", framework="np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  it is no dictionary
    products = sum(shape[0] * shape[1] for name, shape in shapes.items() if ".layer" in name and len(shape) == 2)
    assert replace(BERT, num_hidden_layers=1).layer_parameters == products


BATCH_TOKENS = 8192


def filled(turns: list[Turn]) -> Filled:
    """A run from 0 to 100 s."""
    counters = WatchedCounters(tuple)
    counters.began, counters.ended = Moment(0.0, 0.0, 0.0, 0.0), Moment(100.0, 2.0, 1.0, 0.0)
    return Filled(BATCH_TOKENS, Cost(), Work(counters, (), (), Load(100.0, 0.1, 0.0)), turns)


@pytest.mark.parametrize(("tokens", "seconds"), [(8_192, 0.0123), (32_768, 0.047), (20_480, 0.02965)])
def test_a_batch_takes_as_long_as_on_the_measured_device(tokens: int, seconds: float) -> None:
    """The two measured points, and the line between them; `slower` multiplies."""
    assert seconds == pytest.approx(Cost().seconds(tokens))
    assert 3 * seconds == pytest.approx(Cost(slower=3.0).seconds(tokens))


def test_the_device_computes_one_batch_at_a_time() -> None:
    """Batches that two threads give it together follow one another, each for its own time."""
    device = Device(Cost(slower=0.1))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(device.compute, [8_192] * 6))
    assert len(device.turns) == 6
    assert all(before.ended_s <= after.began_s for before, after in pairwise(device.turns))
    assert all(turn.ended_s - turn.began_s == pytest.approx(0.00123) for turn in device.turns)


def test_the_rate_under_backlog_ends_with_the_last_full_batch() -> None:
    """A device that is busy without a gap has its bare rate then; later batches and the ends count in the other ratio."""
    batch_s = Cost().seconds(BATCH_TOKENS)
    turns = [Turn(BATCH_TOKENS, place * batch_s, (place + 1) * batch_s) for place in range(3)]
    turns.append(Turn(100, 50.0, 51.0))
    run = filled(turns)
    assert run.under_backlog == pytest.approx(1.0)
    assert run.overall == pytest.approx((3 + 100 / BATCH_TOKENS) * batch_s / 100)


@pytest.mark.broker
def test_a_tiny_run_through_kafka_is_measured(broker: Cluster) -> None:
    """The dry run: every article is published, with entities."""
    bench = Bench(1, quick=True, say=lambda _: None)
    vars(bench)["cluster"] = broker
    found = measure(bench, count=12, batch_tokens=2048, cost=Cost(slower=0.1), entities=40)
    figures = found.figures()
    assert figures["articles"] == 12
    assert 20 < figures["entities_per_article"] < 60
    assert 0 < found.overall < 1
    [table] = outcome(found).tables
    assert [*figures] == [name for name, _ in table.rows]
