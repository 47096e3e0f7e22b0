"""Whether early batches pay, from the costs of a run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from enricher.worker.build.loaded_model import DEFAULT_BUCKET_EDGES
from enricher.worker.rules.batch_rules import BatchRules
from enricher.workshop.freshness import CANDIDATES, HALF, LOW, MOST_COST, early_overhead, simulate
from enricher.workshop.simulator import EngineModel

CPU = EngineModel(2, thread_tokens_per_s=1_000, run_overhead_tokens=20)
RULES = BatchRules(DEFAULT_BUCKET_EDGES, max_batch_tokens=512, max_wait_s=0.05, run_overhead_tokens=20)


def test_early_batches_pay_where_runs_have_a_small_fixed_cost() -> None:
    """Fresher at low load, and hardly dearer at half load."""
    share, (low, new_low, half, new_half) = early_overhead(RULES, CPU)
    assert share == new_low.early_overhead == new_half.early_overhead
    assert share in CANDIDATES
    assert (LOW, LOW, HALF, HALF) == (low.load, new_low.load, half.load, new_half.load)
    assert new_low.p50_ms < low.p50_ms - 30, "most of max_wait"
    assert new_half.thread_ms <= MOST_COST * half.thread_ms


@pytest.mark.parametrize("padding_cost", [1.0, 0.0])
def test_early_batches_do_not_pay_where_one_window_takes_as_long_as_a_full_batch(padding_cost: float) -> None:
    """While it runs, others wait for longer than they would have waited together."""
    engine = EngineModel(1, 100_000, 40_000, padding_cost)
    rules = replace(RULES, max_batch_tokens=4096, run_overhead_tokens=40_000)
    share, rows = early_overhead(rules, engine)
    assert 0.0 == share
    assert 4 == len(rows)


def test_a_lone_window_takes_the_timer_and_its_run() -> None:
    """Nearly without load: max_wait and 20 ms for the run and 8 to 48 for the tokens, or only these."""
    late, early = (simulate(replace(RULES, early_overhead=share), CPU, 0.005) for share in (0.0, 0.4))
    assert late.p50_ms == pytest.approx(early.p50_ms + 50, abs=3)
    assert 28 <= early.p50_ms <= early.p99_ms <= 100
    assert 28 <= early.thread_ms <= 68


@pytest.mark.parametrize("run_s", [1e-3, 30.0, 3_000.0])
def test_rows_are_numbers_however_slow_the_machine_was(run_s: float) -> None:
    """Seen, measured beside a load: too few windows came in a minute for a median, and no worker took the file."""
    share, rows = early_overhead(RULES, EngineModel(1, thread_tokens_per_s=1_000 / run_s, run_overhead_tokens=1_000))
    assert share in (0.0, *CANDIDATES)
    assert all(math.isfinite(value) for row in rows for value in row.model_dump().values())
