"""Partitions of a killed process: they have no owner until the broker assigns them again."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import orjson
import pytest
from health.looking import serving
from health.test_health_processes import Parent, parent_health
from loop.fake_clock import FakeClock
from prometheus_client.parser import text_string_to_metric_families as plain

from enricher.worker.health.processes import ProcessesHealth
from enricher.worker.health.routes import ProbeResult, Reply, Request
from enricher.worker.processes import ProcessState

READY, DONE, SILENT = ProcessState.READY, ProcessState.DONE, ProcessState.SILENT
BOTH_READY = ProbeResult(ok=True, reason="2 ready")


@dataclass(slots=True)
class Process:
    """What a process reports: its partitions and their lag."""

    partitions: dict[int, int]
    oldest_age_s: float = 0.0

    def route(self, _request: Request) -> Reply:
        """As in `/status.json`, without the other keys."""
        named = [{"topic": "articles", "number": number, "lag": lag} for number, lag in self.partitions.items()]
        body = orjson.dumps({"partitions": named, "oldest_age_s": self.oldest_age_s})
        return Reply(HTTPStatus.OK, "application/json", body)


def without_owner(health: ProcessesHealth) -> tuple[int, int, float]:
    """Their number, lag and age."""
    found = health.status()["without_owner"]
    return found["partitions"], found["lag"], found["oldest_age_s"]


def test_partitions_of_a_killed_process_are_visible_until_somebody_has_them() -> None:
    """The parent is not ready and reports lag and age, until both have another owner, one of them elsewhere."""
    parent = Parent({0: READY, 1: READY}, ready=True, started=True)
    clock, first, second = FakeClock(), Process({0: 0, 1: 0}), Process({2: 5, 3: 0}, 7.0)
    health = parent_health(parent, clock)
    with serving({"/status.json": first.route}) as port, serving({"/status.json": second.route}) as other:
        parent.ports |= {0: port, 1: other}
        health.note_owners()
        assert (BOTH_READY, (0, 0, 0.0)) == (health.readiness(), without_owner(health))
        clock.sleep(3.0)
        del parent.ports[1]
        ready = health.readiness()
        assert (False, "2 ready; 2 partitions without an owner, since a process ended or is silent") == (
            ready.ok,
            ready.reason,
        )
        assert (2, 5, 10.0) == without_owner(health)
        samples = {
            sample.labels["process"]: sample.value
            for family in plain(health.metrics("")[0].decode())
            for sample in family.samples
            if sample.name == "enricher_oldest_age_seconds"
        }
        assert {"none": 10.0} == samples
        clock.sleep(2.0)
        first.partitions[3] = 0
        health.note_owners()
        assert (1, 5, 12.0) == without_owner(health)
        clock.sleep(18.0)  # 20 s after it ended, the broker has given the last one to somebody
        assert (BOTH_READY, (0, 0, 0.0)) == (health.readiness(), without_owner(health))


def test_a_new_process_in_its_place_does_not_hide_them() -> None:
    """The new process is ready at once, but gets partitions only after the session timeout of the dead one."""
    parent = Parent({0: READY}, ready=True, started=True)
    clock, process = FakeClock(), Process({0: 0, 1: 0})
    health = parent_health(parent, clock)
    with serving({"/status.json": process.route}) as port:
        parent.ports[0] = port
        health.note_owners()
        parent.first_pid, process.partitions = 2_000, {}
        clock.sleep(1.0)
        health.note_owners()
        assert (2, 0, 1.0) == without_owner(health)
        process.partitions = {0: 0, 1: 0}
        health.note_owners()
        assert (0, 0, 0.0) == without_owner(health)


@pytest.mark.parametrize("state", [READY, DONE])
def test_partitions_that_were_given_up_in_good_order_are_not_counted(state: ProcessState) -> None:
    """In a rebalance, or when a process had nothing left to do, the group assigns them to others."""
    parent = Parent({0: READY, 1: READY}, ready=True, started=True)
    clock, process = FakeClock(), Process({0: 0, 1: 0})
    health = parent_health(parent, clock)
    with serving({"/status.json": process.route}) as port:
        parent.ports[1] = port
        health.note_owners()
        process.partitions = {}
        if state is DONE:
            parent.processes[1] = state
            del parent.ports[1]
        else:
            health.note_owners()
        clock.sleep(1.0)
        assert (0, 0, 0.0) == without_owner(health)


def test_partitions_of_a_silent_process_count_until_it_continues() -> None:
    """It holds them as a member of the group, but neither reads them nor tells their lag."""
    parent = Parent({0: READY, 1: READY}, ready=True, started=True)
    clock, first, second = FakeClock(), Process({0: 0}), Process({1: 5}, 7.0)
    health = parent_health(parent, clock)
    with serving({"/status.json": first.route}) as port, serving({"/status.json": second.route}) as other:
        parent.ports |= {0: port, 1: other}
        health.note_owners()
        parent.processes[1] = SILENT
        clock.sleep(3.0)
        assert (1, 5, 10.0) == without_owner(health)
        parent.processes[1] = READY
        health.note_owners()
        assert (0, 0, 0.0) == without_owner(health)


def test_while_all_processes_are_silent_the_age_of_their_partitions_grows_on() -> None:
    """Nobody is left to say who has them; the broker's time to assign them begins when somebody reports again."""
    parent = Parent({0: READY, 1: READY}, ready=True, started=True)
    clock, process = FakeClock(), Process({0: 0}, 1.0)
    health = parent_health(parent, clock)
    with serving({"/status.json": process.route}) as port:
        parent.ports |= {0: port, 1: port}
        health.note_owners()
        parent.processes |= {0: SILENT, 1: SILENT}
        clock.sleep(60.0)
        assert (1, 0, 61.0) == without_owner(health)
        parent.processes[0], parent.first_pid, process.partitions = READY, 2_000, {}
        clock.sleep(19.0)
        assert (1, 0, 80.0) == without_owner(health)
        clock.sleep(1.0)
        assert (0, 0, 0.0) == without_owner(health)
