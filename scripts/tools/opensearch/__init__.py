"""A real OpenSearch for development, the demo and the tests, without containers.

    from tools.opensearch import OpenSearch

    with OpenSearch() as server:
        print(server.url)

This package knows the server and nothing of `enricher`; `enricher` never imports it.
"""

from tools.opensearch.server import LOCK_PATH, OpenSearch, OpenSearchError

__all__ = ["LOCK_PATH", "OpenSearch", "OpenSearchError"]
