"""`enricher index run`: what it refuses before it connects, and what is seen of it: probes, metrics and status."""

from __future__ import annotations

from dataclasses import replace

import pytest
from commands.cli_runner import run
from telemetry.building import WORKER, observed_indexer

from enricher.errors import SettingsError
from enricher.indexing.index_health import READY_WITHIN_S, IndexHealth
from enricher.worker.runtime.watchdog import Watched
from enricher.worker.stats import WorkerState


@pytest.mark.parametrize("command", ["run", "verify"])
def test_several_input_topics_are_refused_with_the_reason_and_what_to_do(command: str) -> None:
    """Versions of a key in two topics do not compare, so the index could end up wrong without anybody noticing."""
    refused = run("index", command, env={"ENRICHER_KAFKA__INPUT_TOPICS": '["articles.now", "articles"]'})
    assert isinstance(refused.exception, SettingsError)
    assert "comparable only within one" in str(refused.exception)
    assert "its own workers, output topic and index (index.name)" in str(refused.exception)


def shown(**changes: object) -> IndexHealth:
    """The health of an indexer that is built."""
    seen = observed_indexer()
    now = replace(seen.snapshot(), **changes)  # type: ignore[arg-type]  # checked at run time
    health = IndexHealth(WORKER)
    health.show(replace(seen, snapshot=lambda: now), lambda: None)
    return health


def test_before_it_is_built_only_the_process_is_alive() -> None:
    """The reason is the step of the start."""
    health = IndexHealth(WORKER)
    health.note_step("connecting with the search index")
    answers = health.liveness(), health.readiness(), health.startup()
    assert [True, False, False] == [each.ok for each in answers]
    assert {"connecting with the search index"} == {each.reason for each in answers}
    assert b"" == health.metrics("")[0]


def test_an_index_that_takes_nothing_turns_readiness_and_not_liveness() -> None:
    """A new process would not help."""
    stuck = shown(stuck_s=READY_WITHIN_S + 1, state=WorkerState.RECOVERING)
    assert (False, "the search index has taken nothing for 16 s") == (stuck.readiness().ok, stuck.readiness().reason)
    assert stuck.liveness().ok
    assert {"stuck_s", "stuck_reason"} <= stuck.status().keys()
    assert shown(stuck_s=READY_WITHIN_S - 1).readiness().ok, "a pause is no outage"


@pytest.mark.parametrize("state", [WorkerState.JOINING, WorkerState.DRAINING])
def test_it_is_ready_while_it_works(state: WorkerState) -> None:
    """Neither before it is a member nor once it was asked to end."""
    assert shown().readiness().ok
    assert (False, state.value) == (shown(state=state).readiness().ok, shown(state=state).readiness().reason)


def test_a_turn_that_does_not_end_turns_liveness() -> None:
    """At half of its bound, as for a worker."""
    health = IndexHealth(WORKER)
    health.show(observed_indexer(), lambda: Watched("one turn of the loop", 60.0, 31.0))
    assert not health.liveness().ok


def test_every_instrument_is_exposed() -> None:
    """With those of the process."""
    text = shown().metrics("")[0].decode()
    assert 'enricher_index_documents_total{enricher_outcome="older"} 10.0' in text
    assert 'enricher_index_partition_lag{messaging_destination_name="entities"' in text
    assert "process_cpu_time_seconds_total" in text
