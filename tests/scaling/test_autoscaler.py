"""The documented rules of Kubernetes' autoscaler and KEDA, as the simulation implements them, one by one."""

from __future__ import annotations

from tools.scaling.autoscaler import Autoscaler
from tools.scaling.metrics import ByBareAge, ByLag, Look


def synced(scaler: Autoscaler, *turns: tuple[int, float]) -> list[int]:
    """The replicas after each cycle, 15 s apart, for (replicas, metric per target)."""
    return [scaler.sync(replicas, metric, 1.0, 15.0 * turn) for turn, (replicas, metric) in enumerate(turns)]


def test_ten_percent_are_nothing() -> None:
    """That is the tolerance in both directions; beyond it the number is rounded up."""
    assert synced(Autoscaler(100), (10, 10.9), (10, 9.1)) == [10, 10]
    assert synced(Autoscaler(100), (10, 11.1)) == [12]


def test_up_goes_to_twice_as_many_or_to_four_more_at_a_time() -> None:
    """The larger of both counts, and never more than the maximum."""
    assert synced(Autoscaler(100), (1, 50.0), (5, 50.0), (10, 50.0)) == [5, 10, 20]
    assert synced(Autoscaler(12), (10, 50.0)) == [12]


def test_down_goes_to_the_most_that_was_wanted_in_five_minutes() -> None:
    """Lower numbers have no effect before that."""
    turns = [(8, 8.0), *[(8, 2.0)] * 20]
    assert synced(Autoscaler(100), *turns) == [8] * 20 + [2]


def test_from_zero_and_to_zero_is_kedas_turn() -> None:
    """The autoscaler neither leaves zero nor scales to it; KEDA does, after the cooldown."""
    scaler = Autoscaler(100)
    assert scaler.sync(0, 5.0, 1.0, 0.0) == 0
    assert scaler.poll(0, 0.0, active=True) == 1
    assert scaler.sync(1, 0.0, 1.0, 15.0) == 1
    assert [scaler.poll(1, now_s, active=False) for now_s in (30.0, 300.0, 330.0)] == [1, 1, 0]


def test_lag_is_capped_at_the_threshold_for_each_partition() -> None:
    """A lag of 1,000 on 8 partitions with a threshold of 100 is reported as 800, as observed with KEDA."""
    look = Look(now_s=0.0, written=1000, done=0, age_s=9.0, workers=1, partitions=8)
    assert ByLag(100.0).ask(look) == (800.0, True)
    assert ByLag(1000.0).ask(look) == (1000.0, True)


def test_a_bare_age_multiplies_the_workers_that_are_there() -> None:
    """It does so however little waits."""
    look = Look(now_s=0.0, written=1, done=0, age_s=600.0, workers=3, partitions=8)
    assert ByBareAge(60.0).ask(look) == (30.0, True)
