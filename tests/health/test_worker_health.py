"""What probes and page say about a complete worker on the fake log and the fake clock, in each of its states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import orjson
import pytest
from health.looking import EPOCH_S, FACTS, GPU, health_of, view_of
from loop.faults import Fault, Faults, no_fault
from loop.world import INVALID, LONG, POISONED, SHORT, Process, World

from enricher.errors import TransactionTrouble
from enricher.worker.health.routes import ProbeResult
from enricher.worker.health.samples import EVERY_S, KEPT_S, Interval, lag_of, take_sample
from enricher.worker.health.worker_health import TURN, Waits, WorkerHealth, status_of, why_stuck
from enricher.worker.records import Partition
from enricher.worker.records.reasons import MODEL_FAILS, OTHER
from enricher.worker.runtime.watchdog import Watched
from enricher.worker.stats import SchemaState


@dataclass(frozen=True, slots=True)
class Scene:
    """A worker and its health."""

    world: World
    process: Process
    health: WorkerHealth

    def work(self, *values: bytes | None) -> None:
        """Put articles and let the worker publish them, taking samples on the way."""
        self.world.put(*values)
        while not self.world.done():
            self.world.steps(self.process, until=lambda: True)
            self.process.worker.step()
            self.health.sample()


def scene(fault: Fault = no_fault) -> Scene:
    """A worker that is built and owns its partitions."""
    world = World()
    process = world.start(fault=fault).joined()
    health = health_of(world.clock)
    health.show(view_of(process, gpus=(GPU,)))
    return Scene(world, process, health)


def test_before_there_is_a_worker_it_lives_and_is_not_ready() -> None:
    """The startup probe gives the step as reason, and the metrics say "starting"."""
    health = health_of(World().clock)
    assert ProbeResult(ok=True, reason="loading the model") == health.liveness()
    assert ProbeResult(ok=False, reason="loading the model") == health.readiness() == health.startup()
    health.note_step("connecting with the brokers")
    assert ProbeResult(ok=False, reason="connecting with the brokers") == health.readiness() == health.startup()
    assert b'enricher_state{enricher_state="starting"} 1.0\n' in health.metrics("")[0]
    status = health.status()
    assert ("starting", []) == (status["state"], status["history"]["rows"])


def test_a_worker_with_nothing_to_do_is_idle() -> None:
    """For people; probes and metrics still call it working, which it would do if there were anything."""
    here = scene()
    assert ("idle", "working") == (here.health.status()["state"], here.health.readiness().reason)
    assert b'enricher_state{enricher_state="working"} 1.0\n' in here.health.metrics("")[0]
    assert here.health.startup().ok
    here.process.engine.hangs = True
    here.world.put(SHORT)
    here.world.steps(here.process, until=lambda: here.process.engine.busy > 0)
    assert "working" == here.health.status()["state"]


def test_the_status_knows_the_registry_and_which_partitions_lag_most() -> None:
    """Since when it is away, and what waits for it; None where articles need no schemas."""
    here = scene()
    parts = [Partition("articles", number) for number in range(3)]
    snapshot = replace(
        view_of(here.process).observed.snapshot(),
        lags=dict(zip(parts, (5, 70, 5), strict=True)),
        schemas=SchemaState(away_s=12.5, wanted=2),
        waiting_articles=9,
    )
    view, now = view_of(here.process), take_sample(here.process.worker.counters, snapshot, 0.0, 0.0)
    status = status_of(view, snapshot, now, Interval(now, now))
    assert status_of(view, replace(snapshot, schemas=None), now, Interval(now, now))["registry"] is None
    assert {"away_s": 12.5, "wanted_schemas": 2, "waiting_articles": 9} == status["registry"]
    assert [(1, 70), (0, 5), (2, 5)] == [(each["number"], each["lag"]) for each in status["partitions"]]


def test_it_is_ready_as_a_member_and_not_while_it_drains() -> None:
    """It is ready while it works, and not when it was asked to end."""
    here = scene()
    assert ProbeResult(ok=True, reason="working") == here.health.readiness()
    here.process.worker.stop()
    assert ProbeResult(ok=False, reason="draining") == here.health.readiness()
    assert here.health.liveness().ok, "a pod that drains is not to be killed"


def test_a_model_that_hangs_turns_it_dead_and_back_when_it_goes_on() -> None:
    """It fails after half of the bound of 30 s; a late result counts as progress."""
    here = scene()
    here.process.engine.hangs = True
    here.world.put(SHORT)
    here.world.steps(here.process, until=lambda: here.process.engine.busy > 0)
    assert here.health.liveness().ok
    here.world.steps(here.process, until=lambda: not here.health.liveness().ok, at_most=10_000)
    assert "the model has finished no batch for 15 s, bound 15 s" == here.health.liveness().reason
    assert here.world.clock() < 17
    here.process.engine.hangs = False
    here.process.engine.finish(here.process.engine.submitted[0])
    here.process.worker.step()
    here.process.worker.step()
    assert here.health.liveness().ok


def test_what_the_engine_finished_while_the_broker_was_away_is_no_hang() -> None:
    """The loop did not check for so long because it waited for the broker."""
    here = scene()
    here.world.put(SHORT)
    here.world.steps(here.process, until=lambda: here.process.engine.busy > 0)
    here.world.clock.sleep(1_000)
    assert here.health.liveness().ok
    here.process.worker.step()
    assert here.health.liveness().ok


def test_an_idle_worker_is_alive_for_ever() -> None:
    """Having nothing to do is not hanging."""
    here = scene()
    for _ in range(1_000):
        here.process.worker.step()
        assert here.health.liveness().ok
    assert here.world.clock() > 60


def test_recoveries_are_told_with_their_kind_and_time_and_turn_no_probe() -> None:
    """Only the class of the error is shown, because its message may quote the broker."""
    here = scene(fault=Faults("commit", TransactionTrouble("what a broker said"), 1))
    here.work(SHORT, LONG)
    status = here.health.status()
    assert "what a broker said" not in orjson.dumps(status).decode()
    (recovery,) = status["recoveries"]
    assert ("TransactionTrouble", True) == (recovery["reason"], recovery["recovered"])
    assert EPOCH_S <= recovery["at"] <= EPOCH_S + here.world.clock()
    assert recovery["duration_s"] >= 0
    assert here.health.liveness().ok
    assert here.health.readiness().ok


def test_the_status_counts_what_was_published() -> None:
    """With the same numbers as the counters, dead letters by reason, and no word of an article, enriched or refused."""
    here = scene()
    here.work(SHORT, LONG, INVALID, POISONED, None)
    status = here.health.status()
    assert here.process.counters.published == status["totals"]["published"] == 5
    assert 2 == status["totals"]["dead_letters"] == sum(letter["count"] for letter in status["dead_letters"])
    reasons = {(letter["stage"], letter["reason"]) for letter in status["dead_letters"]}
    assert {("decode", OTHER), ("inference", MODEL_FAILS)} == reasons
    assert here.process.counters.transactions == status["transactions"]["committed"]
    assert 0 < status["batches"]["fill"] <= 1
    assert 0 <= status["batches"]["padding_share"] < 1
    assert status["rates"]["articles_per_s"] > 0
    assert "NVIDIA H200" == status["gpus"][0]["name"]
    assert FACTS.group == status["worker"]["group"]
    text, words = orjson.dumps(status).decode(), ("Ada", "Lovelace", "London", "poison", "Mister", "second line")
    assert [] == [word for word in words if word in text]


def test_the_status_lists_tasks_and_labels_with_their_shares() -> None:
    """A worker without tasks has no list of them; labels come with their shares, the largest first."""
    here = scene()
    assert [] == here.health.status()["tasks"]
    counters = here.process.counters
    counters.labels.update({("ner", "PER"): 1, ("ner", "ORG"): 3})
    here.world.clock.sleep(10.0)
    counters.tasks = {"ner": Counter(ran=4, skipped=2, failed=1), "topics": Counter()}
    status = here.health.status()
    ner, topics = status["tasks"]
    assert {"name": "ner", "ran": 4, "skipped": 2, "failed": 1} == ner
    assert {"name": "topics", "ran": 0, "skipped": 0, "failed": 0} == topics
    assert [("ORG", 3, 0.75), ("PER", 1, 0.25)] == [
        (each["label"], each["count"], each["share"]) for each in status["labels"]
    ]


def test_the_charts_have_a_row_for_each_sample_of_the_last_15_minutes() -> None:
    """Old samples are dropped; a page that has some requests only the rest."""
    here = scene()
    for _ in range(int(KEPT_S / EVERY_S) + 100):
        here.world.clock.sleep(EVERY_S)
        here.health.sample()
    history = here.health.status()["history"]
    rows = history["rows"]
    assert int(KEPT_S / EVERY_S) == len(rows)
    assert KEPT_S - EVERY_S == rows[-1][0] - rows[0][0]
    assert {len(history["columns"])} == set(map(len, rows))
    assert rows[-3:] == here.health.status(since=rows[-4][0])["history"]["rows"]
    assert [] == here.health.status(since=rows[-1][0])["history"]["rows"]


def test_an_unknown_lag_is_none_and_that_of_no_partition_is_zero() -> None:
    """0 would mean that there is nothing to do."""
    here = scene()
    here.process.worker.step()
    snapshot = here.process.worker.snapshots.read()
    (one, other) = here.process.tracker.partitions
    assert lag_of(replace(snapshot, lags={})) is None
    assert 7 == lag_of(replace(snapshot, lags={one: 3, other: 4}))
    assert 0 == lag_of(replace(snapshot, lags={}, partitions=0))


QUICK = Waits(engine_s=0.0, tokenizer_s=0.0, limit_s=120.0)


@pytest.mark.parametrize(
    ("watched", "waits", "reason"),
    [
        (None, QUICK, None),
        (Watched(TURN, 60.0, 29.9), QUICK, None),
        (Watched(TURN, 60.0, 30.6), QUICK, "no progress in 'one turn of the loop' for 31 s, bound 30 s"),
        (Watched("draining", 60.0, 59.9), QUICK, None),
        (Watched("draining", 60.0, 60.9), QUICK, "no progress in 'draining' for 61 s, bound 60 s"),
        (None, Waits(60.0, 0.0, 120.0), None),
        (None, Waits(61.0, 0.0, 120.0), "the model has finished no batch for 61 s, bound 60 s"),
        (None, Waits(0.0, 61.0, 120.0), "the tokenizer has finished nothing for 61 s, bound 60 s"),
    ],
)
def test_the_reason_names_what_is_stuck(watched: Watched | None, waits: Waits, reason: str | None) -> None:
    """At half the bound for work of its own; a wait for the broker, which a new process would also have, at the whole."""
    assert reason == why_stuck(watched, waits)
