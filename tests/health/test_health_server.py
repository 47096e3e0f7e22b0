"""The server: what it answers, what it refuses, that no client can block it, and the common probes of several processes."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus

import pytest
from health.looking import LOCALHOST, get, health_of, served, serving, until, view_of
from loop.world import World
from support.patience import PATIENCE_S

from enricher.errors import SettingsError
from enricher.worker.health import routes as routes_module
from enricher.worker.health import server as server_module
from enricher.worker.health.routes import PROBES, Reply, Request, common_probes, line, page_routes, probe_routes
from enricher.worker.health.server import HealthServer
from enricher.worker.health.worker_health import WorkerHealth

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")

PATHS = ["/", "/livez", "/readyz", "/startupz", "/metrics", "/status.json"]


@pytest.fixture
def health() -> WorkerHealth:
    """Health of a worker that is not built yet."""
    return health_of(World().clock)


@pytest.fixture
def port(health: WorkerHealth) -> Iterator[int]:
    """The port that serves it."""
    with served(health) as port:
        yield port


def raw(port: int, request: bytes) -> bytes:
    """The server's answer to these bytes, until it closes the connection."""
    with socket.create_connection((LOCALHOST, port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_fresh_and_closes_its_connection(port: int, path: str) -> None:
    """Each connection carries one request, so an idle one occupies no thread. HEAD says the same without the body."""
    got, headed = get(port, path), get(port, path, method="HEAD")
    expected = {"Cache-Control": "no-store", "Connection": "close", "X-Content-Type-Options": "nosniff"}
    assert (expected | {"Server": "enricher"}).items() <= got.headers.items()
    assert (got.status, b"") == (headed.status, headed.body)
    same = ["Content-Type", *(["Content-Length"] if path != "/status.json" else [])]  # the time is in it
    assert [got.headers[name] for name in same] == [headed.headers[name] for name in same]


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "BREW"])
def test_nothing_can_be_changed(port: int, method: str) -> None:
    """Other methods are refused with a list of the allowed ones."""
    answer = get(port, "/livez", method=method)
    assert (405, "GET, HEAD", "method not allowed\n") == (answer.status, answer.headers["Allow"], answer.text)
    assert 404 == get(port, "/../status.py").status, "no file is served"


def test_the_page_may_load_nothing_from_elsewhere(port: int) -> None:
    """The policy allows its own style and script by their hashes."""
    policy = get(port, "/").headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b"\r\n\r\n",
    ],
)
def test_nonsense_is_not_repeated(port: int, request_bytes: bytes) -> None:
    """Anything else is refused with our own line or by closing the connection; the next request is served.

    A complete request for what is no address is answered like every other.
    """
    try:
        answer = raw(port, request_bytes)
    except ConnectionError:  # it hung up on what it did not read
        answer = b""
    assert b"aaaa" not in answer
    assert b"\xff" not in answer
    assert b"<html" not in answer.lower()
    assert raw(port, b"GET http://[a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert 200 == get(port, "/livez").status


def test_an_error_is_for_the_log_and_not_for_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """The answer is 500 and one line."""

    def broken(_request: Request) -> Reply:
        raise ValueError("the secret reason")

    caplog.set_level(logging.ERROR)
    with serving({"/": broken}) as port:
        answer = get(port, "/")
    assert (500, "internal error, see the log\n") == (answer.status, answer.text)
    assert "the secret reason" in caplog.text


@pytest.mark.slow
def test_who_says_nothing_more_is_cut_off(monkeypatch: pytest.MonkeyPatch, health: WorkerHealth) -> None:
    """The bound is the time without another byte of the request; then the thread is free again."""
    monkeypatch.setattr(server_module._Handler, "timeout", 0.5)
    with served(health) as port, socket.create_connection((LOCALHOST, port), timeout=PATIENCE_S) as slow:
        slow.sendall(b"GET /livez HT")
        assert 200 == get(port, "/livez").status
        assert b"" == slow.recv(1_000)


@contextmanager
def connected(port: int, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open this many connections, each with these first bytes."""
    with ExitStack() as open_ones:
        connections = []
        for _ in range(count):
            connection = open_ones.enter_context(socket.create_connection((LOCALHOST, port), timeout=PATIENCE_S))
            with suppress(ConnectionError):  # turned away already
                connection.sendall(said)
            connections.append(connection)
        yield connections


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX: "])
def test_the_kubelet_is_answered_under_64_slow_connections(port: int, said: bytes) -> None:
    """Every probe is answered although the slow clients use the same port: each connection has its thread."""
    with connected(port, 64, said):
        assert [200] * 21 == [get(port, "/livez").status for _ in range(21)]


@pytest.mark.skipif(sys.platform == "win32", reason="asks for a limit that Windows does not have")
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_the_kubelet_is_answered_while_a_crowd_fills_the_port_of_the_page(health: WorkerHealth, count: int) -> None:
    """The test opens as many as the process may; the server keeps few, and the probes have a port to themselves."""
    import resource  # noqa: PLC0415  there is none on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    threads = threading.active_count()
    with serving(page_routes(health)) as page, serving(probe_routes(health)) as probes:
        with connected(page, min(count, soft - server_module.MAX_CONNECTIONS - 200), b"GET /"):
            assert [200] * 21 == [get(probes, "/livez").status for _ in range(21)]
            assert threading.active_count() <= threads + server_module.MAX_CONNECTIONS + 3
        until(lambda: get(page, "/").status == 200, "the page has room again")


def test_the_end_does_not_wait_for_an_answer_that_hangs() -> None:
    """The server closes while the thread of a request is held; nobody can connect any more."""
    asked, hold = threading.Event(), threading.Event()

    def held(_request: Request) -> Reply:
        asked.set()
        assert hold.wait(PATIENCE_S)
        return line(HTTPStatus.OK, "too late")

    with socket.socket() as client:
        with serving({"/": held}) as port:
            client.connect((LOCALHOST, port))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert asked.wait(PATIENCE_S)
        assert not hold.is_set()
        with pytest.raises(ConnectionError):
            get(port, "/")
    hold.set()


def server_at(host: str, port: int | None, usual_port: int = 8080) -> HealthServer:
    """A server without paths."""
    return HealthServer({}, host=host, port=port, usual_port=usual_port, setting="health.port")


def test_a_port_that_was_asked_for_must_be_free(health: WorkerHealth) -> None:
    """It is a settings error that names the setting, before anything is loaded."""
    with served(health) as taken, pytest.raises(SettingsError, match=rf"health\.port.*{LOCALHOST}:{taken}"):
        server_at(LOCALHOST, taken)


def test_the_usual_port_may_be_taken(health: WorkerHealth) -> None:
    """Then any free port is used, and the log names it."""
    with served(health) as taken, server_at(LOCALHOST, None, taken) as second:
        assert second.port not in {0, taken}
        assert f"http://{LOCALHOST}:{second.port}/" == second.url


@pytest.mark.parametrize(
    ("host", "address", "has_ipv6"),
    [
        ("::", "127.0.0.1", True),
        pytest.param("::", "::1", True, marks=needs_ipv6),
        ("::", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", True),
    ],
)
def test_a_pod_is_reached_by_whichever_address_it_has(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str, *, has_ipv6: bool
) -> None:
    """`::`, as in the chart, serves IPv4 too, and alone where a node's kernel has no IPv6. A browser can open the URL."""
    if not has_ipv6:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with (
        server_at(host, 0) as server,
        socket.create_connection((address, server.port), PATIENCE_S) as connection,
    ):
        connection.sendall(b"GET /nothing HTTP/1.1\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 404")
    assert f"http://localhost:{server.port}/" == server.url


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
        (["ready", "frozen"], ALL_BAD, "; process 1: no answer\n"),
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
    if "frozen" in states:
        monkeypatch.setattr(routes_module, "ANSWER_S", 0.5)
    with ExitStack() as running:
        ports = [running.enter_context(process(state)) for state in states]
        port = running.enter_context(serving(common_probes(LOCALHOST, lambda: dict(enumerate(ports)))))
        assert statuses == [get(port, path).status for path in PROBES]
        assert said in get(port, "/readyz").text
