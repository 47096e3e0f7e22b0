"""The leg `limit`: thread time, batches of the bare engine, and rates without the broker's share."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.records import Partition, RawRecord, Ticket, Window
from tools.bench.legs.limit import Case, Result, ThreadTime, _batches
from tools.bench.machine import Load
from tools.bench.repeating import Run
from tools.bench.watching import Call, Moment, WatchedCounters, Work


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
