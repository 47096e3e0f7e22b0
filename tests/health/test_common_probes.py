"""The probes of a parent: as good as the worst answer of its processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

import pytest
from health.looking import LOCALHOST, get, health_of, serving, view_of
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


def stuck(_request: Request) -> Reply:
    """The answer to each probe of a worker whose model hangs."""
    return line(HTTPStatus.SERVICE_UNAVAILABLE, "the model has finished no batch for 60 s, bound 60 s")


@contextmanager
def process(state: str) -> Iterator[int]:
    """A process in this state; yields the port of its probes."""
    if state in {"gone", "frozen"}:
        with socket.socket() as taken:
            taken.bind((LOCALHOST, 0))
            if state == "frozen":
                taken.listen()  # the system accepts connections, and nobody answers
            yield taken.getsockname()[1]
        return
    health = ready_worker() if state == "ready" else health_of(World().clock)
    with serving(dict.fromkeys(PROBES, stuck) if state == "stuck" else probe_routes(health)) as port:
        yield port


ALL_BAD = [503, 503, 503]


@pytest.mark.parametrize(
    ("states", "statuses", "said"),
    [
        (["ready", "ready"], [200, 200, 200], "process 0: working; process 1: working\n"),
        (["ready", "starting"], [200, 503, 503], "process 0: working; process 1: loading the model\n"),
        (["ready", "gone"], ALL_BAD, "process 0: working; process 1: no answer\n"),
        (["ready", "frozen"], ALL_BAD, "process 0: working; process 1: no answer\n"),
        (["ready", "stuck"], ALL_BAD, "process 0: working; process 1: the model has finished no batch for 60 s, bound"),
        ([], ALL_BAD, "no process runs\n"),
    ],
    ids=lambda each: " and ".join(map(str, each)) or "no process" if isinstance(each, list) else None,
)
def test_a_parent_is_as_good_as_the_worst_of_its_processes(
    monkeypatch: pytest.MonkeyPatch, states: list[str], statuses: list[int], said: str
) -> None:
    """What /livez, /readyz and /startupz answer; the reason names the process. A new container is the cure of all of them.

    Nobody works on the partitions of one that is gone. The kubelet is told within its timeout, also of one that is frozen.
    """
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    with ExitStack() as running:
        ports = [running.enter_context(process(state)) for state in states]
        port = running.enter_context(serving(common_probes(LOCALHOST, lambda: dict(enumerate(ports)))))
        assert statuses == [get(port, path).status for path in PROBES]
        assert get(port, "/readyz").text.startswith(said)
