"""Each fault of the proxy is what its name says, seen by a client; afterwards all is as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx2
import pytest
from support.fault_proxy import ANSWERS, Fault, FaultProxy, GuardedProxy
from support.patience import PATIENCE_S, wait_until
from support.schema_registry import Registry, serving, status

SCHEMA = b'{"schema":"\\"string\\""}'


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """A proxy in front of a registry that has the same answer for every path."""
    with (
        serving(Registry(behaviour=status(200, SCHEMA))) as registry,
        FaultProxy(f"{registry.url}/api") as proxy,
    ):
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> httpx2.Client:
    """A client that keeps its connections."""
    return httpx2.Client(base_url=proxy.url, timeout=PATIENCE_S)


@pytest.mark.parametrize("fault", sorted(ANSWERS, key=str), ids=lambda fault: fault.name)
def test_an_answer_instead_of_the_registrys(proxy: FaultProxy, client: httpx2.Client, fault: Fault) -> None:
    """Status and body are the fault's, and the next request is passed on."""
    with proxy.fault(fault):
        answer = client.get("/schemas/ids/1")
        assert (ANSWERS[fault].status, ANSWERS[fault].body) == (answer.status_code, answer.content)
    assert SCHEMA == client.get("/schemas/ids/1").content
    assert 2 == proxy.requests["GET /schemas/ids/1"]


def test_down_refuses_and_cuts_kept_connections(proxy: FaultProxy, client: httpx2.Client) -> None:
    """As a process that was killed; and it comes back on the same port."""
    client.get("/schemas/ids/1")
    for _ in range(3):
        with (
            proxy.fault(Fault.DOWN),
            pytest.raises((httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError)),
        ):
            client.get("/schemas/ids/1")
        assert SCHEMA == httpx2.get(f"{proxy.url}/schemas/ids/1").content


@pytest.mark.parametrize("fault", [Fault.HANGS, Fault.DRIPS], ids=lambda fault: fault.name)
def test_what_hangs_ends_with_the_fault(proxy: FaultProxy, fault: Fault) -> None:
    """The connection is cut off then, without an answer."""
    outcome: list[Exception] = []

    def ask() -> None:
        try:
            httpx2.get(f"{proxy.url}/schemas/ids/1", timeout=PATIENCE_S)
        except httpx2.HTTPError as error:
            outcome.append(error)

    with proxy.fault(fault):
        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: proxy.requests.total() == 1, PATIENCE_S, "the request has arrived")
        assert asking.is_alive()
    asking.join(PATIENCE_S)
    assert 1 == len(outcome)


def test_a_redirect_loop_and_a_cut_off_answer(proxy: FaultProxy, client: httpx2.Client) -> None:
    """A client that follows redirects gives up; one that counts bytes sees that some are missing."""
    with proxy.fault(Fault.REDIRECT_LOOP), pytest.raises(httpx2.TooManyRedirects):
        client.get("/schemas/ids/1", follow_redirects=True)
    with proxy.fault(Fault.CUT_OFF), pytest.raises(httpx2.RemoteProtocolError):
        client.get("/schemas/ids/1")


def test_a_proxy_with_credentials_refuses_requests_without_them(proxy: FaultProxy) -> None:
    """As a registry behind basic authentication."""
    with GuardedProxy(proxy.url) as guarded:
        assert 401 == httpx2.get(f"{guarded.url}/schemas/ids/1").status_code
        assert 200 == httpx2.get(f"{guarded.url}/schemas/ids/1", auth=("user", "pass")).status_code
