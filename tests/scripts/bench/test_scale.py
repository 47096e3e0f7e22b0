"""The leg `scale`: the cost of a commit, its claims, and the stub model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.answers import WindowLabels, by_window

from enricher.worker.inference.run.model import EMBEDDED, prepare
from enricher.worker.records import Batch, Partition, RawRecord, Ticket, Window
from tools.bench.legs.scale.report import Scale, commit_cost, outcome
from tools.bench.machine import Load
from tools.bench.repeating import Run
from tools.bench.stub_worker import StubEngine

QUIET = Load(10.0, 0.5, 0.1, 0.0)


def _run(rate: float, **detail: float) -> Run:
    usual: dict[str, Any] = {
        "articles_per_cpu_s": 300.0,
        "worker_cores": 0.2,
        "broker_cores": 0.1,
        "broker_cpu_s": 1.0,
        "worker_cpu_s": 2.0,
        "articles": 1000,
        "transactions": 40,
        "transactions_per_s": 4.0,
    }
    return Run(rate, QUIET, usual | detail)


def _scale(four_times: float, four_per_cpu_s: float) -> Scale:
    at_once = {"1": [_run(100.0)], "4": [_run(150.0, articles_per_cpu_s=four_per_cpu_s)]}
    waiting = {
        "1": [_run(50.0)],
        "4": [_run(50.0 * four_times)],
        "often": [_run(50.0, transactions=440, broker_cpu_s=1.8)],
    }
    return Scale(at_once, waiting, Load(3.0, 0.01, 0.02, 0.0), 1e4, 20.0, 250.0)


def test_cost_of_a_commit_is_the_difference_that_more_of_them_make() -> None:
    """If 400 more transactions cost 0.8 s of broker CPU, each costs 2 ms; the rest, less idling, is the articles'."""
    few = _run(50.0, transactions=40, broker_cpu_s=1.0, worker_cpu_s=2.0)
    many = _run(50.0, transactions=440, broker_cpu_s=1.8, worker_cpu_s=2.4)
    cost = commit_cost([few], [many], idle_broker_cores=0.02)
    assert 2 == pytest.approx(cost.broker_transaction_ms.median)
    assert 1 == pytest.approx(cost.worker_transaction_ms.median)
    assert 1e3 * (1.0 - 0.2 - 0.08) / 1000 == pytest.approx(cost.broker_article_ms.median)


@pytest.mark.parametrize(("four_times", "held"), [(3.6, True), (3.5, False)])
def test_four_waiting_workers_must_do_nine_tenths_of_four_times_one(four_times: float, *, held: bool) -> None:
    """The first claim changes exactly at its aim."""
    assert held == outcome(_scale(four_times, 300.0)).claims[0].held


@pytest.mark.parametrize(("four_per_cpu_s", "held"), [(270.0, True), (269.0, False)])
def test_a_core_second_must_do_nine_tenths_with_four_workers(four_per_cpu_s: float, *, held: bool) -> None:
    """The second claim changes exactly at its aim, where one worker does 300."""
    assert held == outcome(_scale(4.0, four_per_cpu_s)).claims[1].held


def test_stub_answers_for_every_token_in_the_models_types(tmp_path: Path) -> None:
    """Labels are int32 and scores float32, as long as the window; few tokens are entities."""
    engine = StubEngine(prepare(EMBEDDED, device="cpu", precision="fp32", cache_dir=tmp_path))
    ticket = Ticket(RawRecord(Partition("articles", 0), 0, None, b"{}"), 0.0)
    windows = tuple(
        Window(ticket, np.arange(length, dtype=np.int32), 0, 0, length, specials_before=1, arrived_s=0.0)
        for length in (100, 40)
    )
    result = engine.run(Batch(windows))
    answers = [each for each in by_window(result) if isinstance(each, WindowLabels)]
    assert list(windows) == [each.window for each in answers]
    for window, answer in zip(windows, answers, strict=True):
        assert (np.dtype(np.int32), np.dtype(np.float32)) == (answer.labels.dtype, answer.scores.dtype)
        assert (window.length_tokens,) == answer.labels.shape == answer.scores.shape
    assert 4 == np.count_nonzero(answers[0].labels != engine.labels.index("O"))
