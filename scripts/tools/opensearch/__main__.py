"""`scripts/opensearch`: a local OpenSearch. Results go to standard output, progress to standard error."""

from __future__ import annotations

from tools.archives import ArchiveError
from tools.java_server import commands_of
from tools.local_service import run
from tools.opensearch.server import LOCK_PATH, OpenSearch, OpenSearchError

app = commands_of(
    OpenSearch,
    "A real OpenSearch of one node on this machine, without users and TLS. Its indices stay until stop --erase.",
    name="OpenSearch",
    variable="ENRICHER_INDEX__URL",
    lock_path=LOCK_PATH,
)


def main() -> None:
    run(app, "scripts/opensearch", OpenSearchError, ArchiveError)


if __name__ == "__main__":
    main()
