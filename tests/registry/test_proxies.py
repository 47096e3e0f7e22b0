"""Proxies that the environment names: which requests take them, and what they get to see."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from support.schema_registry import Registry, serving

from enricher.worker.articles.schemas import Schema, SchemaRef
from enricher.worker.registry.config import registry_config
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.registry_errors import RegistryUnavailable

SEVEN, TEXT = SchemaRef("id", "7"), '"string"'
PASSWORD = "geheim-7f3a"
KINDS = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")


class Proxy:
    """A real proxy on loopback that tunnels (CONNECT) and keeps every byte that it is sent."""

    def __init__(self) -> None:
        self.seen = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            head = b""
            while b"\r\n\r\n" not in head and (read := client.recv(65_536)):
                head += read
            self.seen += head
            method, target, *_ = head.split(b" ")
            if method != b"CONNECT":
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            host, _, port = target.decode().rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
                back.start()
                self._pass_on(client, server)
                back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while read := source.recv(65_536):
                self.seen += read
                target.sendall(read)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy, and an environment that names none yet."""
    for name in KINDS:
        monkeypatch.delenv(name, raising=False)
    found = Proxy()
    yield found
    found.close()


def asked(registry: Registry, ca: Path | None = None) -> Schema:
    """A schema from this registry, asked for with a password."""
    scheme, _, place = registry.url.partition("://")
    properties: dict[str, str | int | float | bool] = {"ssl.ca.location": str(ca)} if ca else {}
    config = registry_config(f"{scheme}://user:{PASSWORD}@{place}", properties, timeout_s=10, max_schema_bytes=10_000)
    return RegistryClient(config).schema(SEVEN)


@pytest.fixture
def secure(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS, and the file of its authority."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return context, tmp_path / "ca.pem"


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"])
def test_plain_http_goes_to_the_registry_itself(variable: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would read the credentials, which nobody meant for it."""
    monkeypatch.setenv(variable, f"http://{proxy.address}")
    with serving(Registry({"7": {"schema": TEXT}})) as registry:
        assert TEXT == asked(registry).text
    assert [True] == [bool(each) for each in registry.authorizations]
    assert b"" == proxy.seen


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_tls_goes_through_the_proxy_which_sees_no_credentials(
    variable: str, proxy: Proxy, secure: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registries on the internet are reached so; the proxy gets the host's name."""
    monkeypatch.setenv(variable, f"http://{proxy.address}")
    with serving(Registry({"7": {"schema": TEXT}}), tls=secure[0]) as registry:
        assert TEXT == asked(registry, secure[1]).text
    assert [True] == [bool(each) for each in registry.authorizations]
    assert proxy.seen.startswith(f"CONNECT {registry.url.removeprefix('https://')} ".encode())
    assert b"uthorization" not in proxy.seen
    assert PASSWORD.encode() not in proxy.seen


def test_a_host_in_NO_PROXY_is_asked_directly(  # noqa: N802
    proxy: Proxy, secure: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by every other program."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Registry({"7": {"schema": TEXT}}), tls=secure[0]) as registry:
        assert TEXT == asked(registry, secure[1]).text
    assert b"" == proxy.seen


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{PASSWORD}@host:port",
        f"gopher://user:{PASSWORD}@host",
        f"socks5://user:{PASSWORD}@host:1",
        f"http://user:{PASSWORD}@127.0.0.1:1",
    ],
)
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(
    url: str, secure: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The articles wait, and the log says why."""
    monkeypatch.setenv("HTTPS_PROXY", url)
    with serving(Registry(), tls=secure[0]) as registry, pytest.raises(RegistryUnavailable) as caught:
        asked(registry, secure[1])
    assert PASSWORD not in str(caught.value)
