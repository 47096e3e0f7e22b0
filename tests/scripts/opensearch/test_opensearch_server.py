"""The real OpenSearch: it starts, stops and restarts with its data. tests/indexing/ shows that it indexes and searches."""

from __future__ import annotations

from pathlib import Path

import httpx2
import psutil
import pytest
from support.patience import PATIENCE_S
from support.scripted import Script

from tools.kafka.keeper import end
from tools.opensearch import OpenSearch, main
from tools.ports import free_ports

pytestmark = pytest.mark.broker


def test_the_node_listens_on_loopback_only(opensearch: OpenSearch) -> None:
    """Its port for other nodes included: it has no users and no TLS."""
    connections = psutil.Process(opensearch.pid).net_connections(kind="tcp")
    addresses = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


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
