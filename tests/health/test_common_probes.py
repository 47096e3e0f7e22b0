"""The probes of a parent: as good as the worst answer of its processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest
from health.looking import LOCALHOST, Answer, get, health_of, serving, view_of
from loop.world import World

from enricher.worker.health import routes as module
from enricher.worker.health.routes import PROBES, Reply, Request, common_probes, line, probe_routes
from enricher.worker.health.worker_health import WorkerHealth


def ready_worker() -> WorkerHealth:
    """Health of a worker that is a member of its group."""
    process = World().start().joined()
    health = health_of(World().clock)
    health.show(view_of(process))
    return health


@contextmanager
def parent_of(*ports: int) -> Iterator[int]:
    """A parent of processes with these ports; yields its own."""
    with serving(common_probes(LOCALHOST, lambda: dict(enumerate(ports)))) as port:
        yield port


def answers(port: int) -> list[Answer]:
    """What /livez, /readyz and /startupz say."""
    return [get(port, path) for path in PROBES]


def test_a_parent_is_as_ready_as_all_of_its_processes() -> None:
    """One that still starts keeps the whole unready and not started, and the reason names it."""
    starting = health_of(World().clock)
    with serving(probe_routes(ready_worker())) as first, serving(probe_routes(starting)) as second:
        with parent_of(first, second) as port:
            assert [200, 503, 503] == [answer.status for answer in answers(port)]
            assert get(port, "/readyz").text == "process 0: working; process 1: loading the model\n"
        with parent_of(first, first) as port:
            assert [200, 200, 200] == [answer.status for answer in answers(port)]


def test_a_process_that_is_gone_makes_its_parent_neither_alive_nor_ready() -> None:
    """Nobody works on its partitions."""
    with socket.socket() as gone, serving(probe_routes(ready_worker())) as first:
        gone.bind((LOCALHOST, 0))
        with parent_of(first, gone.getsockname()[1]) as port:
            assert [503, 503, 503] == [answer.status for answer in answers(port)]
            assert get(port, "/livez").text.endswith("; process 1: no answer\n")


def test_a_frozen_process_makes_its_parent_neither_alive_nor_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system accepts connections for it, but it never answers; the kubelet is told within its timeout."""
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    with (
        socket.create_server((LOCALHOST, 0)) as frozen,
        serving(probe_routes(ready_worker())) as first,
        parent_of(first, frozen.getsockname()[1]) as port,
    ):
        assert [503, 503, 503] == [answer.status for answer in answers(port)]
        assert get(port, "/readyz").text.endswith("; process 1: no answer\n")


def test_one_that_is_stuck_is_enough_for_a_restart() -> None:
    """A new container is the cure of all of them."""

    def stuck(_request: Request) -> Reply:
        return line(HTTPStatus.SERVICE_UNAVAILABLE, "the model has finished no batch for 60 s, bound 60 s")

    with (
        serving(probe_routes(ready_worker())) as first,
        serving({"/livez": stuck}) as second,
        parent_of(first, second) as port,
    ):
        answer = get(port, "/livez")
    assert answer.status == 503
    assert "process 1: the model has finished no batch for 60 s" in answer.text


def test_without_processes_nothing_is_ready() -> None:
    """Before the first is started, and after the last has ended."""
    with parent_of() as port:
        assert [503, 503, 503] == [answer.status for answer in answers(port)]
        assert get(port, "/readyz").text == "no process runs\n"
