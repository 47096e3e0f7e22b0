"""The real OpenSearch: it indexes, searches and restarts with its data, and nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import psutil
import pytest
from support.patience import PATIENCE_S
from support.scripted import SCRIPTS, Script

from tools.kafka.keeper import end, processes_of
from tools.opensearch import OpenSearch
from tools.opensearch.__main__ import main
from tools.ports import free_ports
from tools.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def client(opensearch: OpenSearch) -> httpx2.Client:
    """Plain HTTP to the node."""
    return httpx2.Client(base_url=opensearch.url, timeout=PATIENCE_S)


def test_a_document_can_be_found_and_a_version_is_kept(client: httpx2.Client) -> None:
    """What the indexer builds on: external versions, and a search after a refresh."""
    document = "/a-first-index/_doc/a?version_type=external_gte&refresh=true&version="
    client.put(f"{document}7", json={"title": "Merkel in Paris"}).raise_for_status()
    assert 409 == client.put(f"{document}6", json={"title": "An older one"}).status_code
    found = client.get("/a-first-index/_search", params={"q": "title:paris"}).json()
    assert ["a"] == [hit["_id"] for hit in found["hits"]["hits"]]


def test_the_node_listens_on_loopback_only(opensearch: OpenSearch) -> None:
    """Its port for other nodes included: it has no users and no TLS."""
    connections = psutil.Process(opensearch.pid).net_connections(kind="tcp")
    addresses = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_a_parent_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    """The keeper ends it, as it ends brokers, even while it starts."""
    program = "import sys, pathlib; from tools.opensearch import *; OpenSearch(data=pathlib.Path(sys.argv[1])).start()"
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SCRIPTS)}) as parent:
        assert wait_until(lambda: any(processes_of(tmp_path.resolve())), PATIENCE_S)
        parent.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(processes_of(tmp_path.resolve())), PATIENCE_S)


def test_a_day_with_opensearch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Start, start again, status, a restart with the indices, stop, stop again, status: each works."""
    script = Script("tools.opensearch", main, tmp_path, monkeypatch, capfd)
    port = str(free_ports(1)[0])
    url = f"http://127.0.0.1:{port}"
    try:
        first = script.process("start", "--port", port)
        assert (0, f"export ENRICHER_INDEX__URL={url}\n") == (first.code, first.out), first.err
        assert first.out == script("start").out
        assert 0 == script("status").code
        taken = script("start", "--port", "1")
        assert 1 == taken.code
        assert "scripts/opensearch stop" in taken.err
        httpx2.put(f"{url}/kept/_doc/a", json={"title": "x"}, timeout=PATIENCE_S).raise_for_status()
        assert 0 == script.process("stop").code
        assert 0 == script("start", "--port", port).code
        assert 200 == httpx2.get(f"{url}/kept/_doc/a", timeout=PATIENCE_S).status_code
        assert 0 == script("stop", "--erase").code
        assert not (tmp_path / "data").exists()
        assert "nothing to do" in script("stop").err
        assert 3 == script("status").code
    finally:
        end(tmp_path.resolve())


@pytest.mark.long
def test_a_restart_forgets_deletes_and_reading_the_topic_again_mends_that() -> None:
    """The limit that deploy/search-index.md states: `gc_deletes` does not outlive the node. Then the delete comes again."""
    document = "/limits/_doc/a?version_type=external_gte&refresh=true&version="
    with OpenSearch() as server, httpx2.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        client.put("/limits", json={"settings": {"index": {"gc_deletes": "1d"}}}).raise_for_status()
        client.delete(f"{document}9")
        assert 409 == client.put(f"{document}5", json={}).status_code
        client.post("/limits/_flush").raise_for_status()
        server.restart({"thread_pool.write.queue_size": 100})
        assert 201 == client.put(f"{document}5", json={}).status_code
        assert 200 == client.delete(f"{document}9").status_code
        assert 404 == client.get("/limits/_doc/a").status_code
