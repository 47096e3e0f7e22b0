"""The real OpenSearch: it listens on loopback, and restarts with its data. tests/indexing/ fills and searches it."""

from __future__ import annotations

import httpx2
import psutil
import pytest
from support.patience import PATIENCE_S

from tools.opensearch import OpenSearch

pytestmark = pytest.mark.broker


def test_the_node_listens_on_loopback_only(opensearch: OpenSearch) -> None:
    """Its port for other nodes included: it has no users and no TLS."""
    connections = psutil.Process(opensearch.pid).net_connections(kind="tcp")
    addresses = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


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
