"""The policy in a control loop with workers that start slowly: it settles, keeps its target, and scales to zero."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from enricher.operate.scaling.policy import Rules
from tools.scaling.day import HOUR_S
from tools.scaling.metrics import ByAge, ByLag
from tools.scaling.simulation import Cluster, Outcome, simulate

CLUSTER = Cluster(partitions=24, most=24, per_s=10.0)


def lived(counts: list[int] | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Outcome:
    """Simulate these numbers of articles per second, scaled by age."""
    return simulate(ByAge(Rules()), np.asarray(counts, np.int64), CLUSTER, seed=1)


@pytest.mark.parametrize(
    "per_s", [1, 8, 33, 97, *(pytest.param(each, marks=pytest.mark.slow) for each in (7, 12, 31, 64, 79))]
)
def test_a_steady_load_is_settled_and_does_not_swing(per_s: int) -> None:
    """After the start the number of workers stays the same while the load does, and nothing is late."""
    counts = np.random.default_rng(per_s).poisson(per_s, 2 * HOUR_S)
    outcome = lived(counts)
    later = slice(HOUR_S, None)
    assert len(set(outcome.replicas[later])) == 1
    assert outcome.age_s[later].max() <= Rules().target_age_s
    assert outcome.replicas[-1] <= 1 + per_s / CLUSTER.per_s / 0.6


def test_a_rush_is_caught_up_with_in_time() -> None:
    """The load grows fivefold within a second: records are late by a worker's start-up time, and no more."""
    outcome = lived([20] * HOUR_S + [100] * HOUR_S)
    rush = outcome.age_s[HOUR_S:]
    assert rush.max() < 180
    assert rush[900:].max() <= Rules().target_age_s


def test_without_work_there_is_nobody_after_the_cooldown() -> None:
    """It scales to zero when nothing arrived for long enough, and from zero for one article."""
    outcome = lived([5] * 1200 + [0] * 1200 + [1] + [0] * 1200)
    assert outcome.replicas[1199] >= 1
    assert outcome.replicas[1200 + 250] >= 1
    assert outcome.replicas[2399] == 0
    assert outcome.replicas[2401 + 60] == 1
    assert outcome.topic.waiting == 0
    assert outcome.replicas[-1] == 0


def test_the_lag_of_a_steady_load_swings() -> None:
    """This is why the policy exists: a lag does not say how many workers keep it small."""
    counts = np.random.default_rng(3).poisson(33, 2 * HOUR_S)
    outcome = simulate(ByLag(600.0), counts, CLUSTER, seed=1)
    assert len(set(outcome.replicas[HOUR_S:])) > 1
    assert outcome.changes > 3 * lived(counts).changes


def test_the_same_seed_gives_the_same_day() -> None:
    """Only the seed is random."""
    counts = [Random(2).randrange(40) for _ in range(HOUR_S)]
    assert lived(counts).as_json(60) == lived(counts).as_json(60)
