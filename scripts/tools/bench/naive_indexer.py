"""The loop that teams write instead of `enricher index run`, for the leg `search_index`: poll, `streaming_bulk`, commit.

    python -m tools.bench.naive_indexer BOOTSTRAP_SERVERS TOPIC URL INDEX RECORDS

It has no versions, no dead letters and no bound. Prints seconds and processor seconds, from the first record to the last
commit, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, Message
from opensearchpy import OpenSearch
from opensearchpy.helpers import streaming_bulk

_BATCH = 500
"""The library's own default for a chunk."""
_WAIT_S = 0.25


def actions_of(messages: list[Message], index: str) -> Iterator[dict[str, Any]]:
    for message in messages:
        value, key = message.value(), message.key() or b""
        yield {"_op_type": "index", "_index": index, "_id": key.decode(), "_source": json.loads(value or b"")}


def main(bootstrap_servers: str, topic: str, url: str, index: str, records: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"naive-{index}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    client = OpenSearch(url)
    consumer.subscribe([topic])
    began: tuple[float, float] | None = None
    done = 0
    while done < records:
        messages = [each for each in consumer.consume(_BATCH, _WAIT_S) if each.error() is None]
        if not messages:
            continue
        began = began or (time.monotonic(), time.process_time())
        done += sum(1 for _ in streaming_bulk(client, actions_of(messages, index)))
        consumer.commit(asynchronous=False)
    assert began is not None
    times = {"working_s": time.monotonic() - began[0], "working_cpu_s": time.process_time() - began[1]}
    sys.stdout.write(json.dumps({"read": done, **times}) + "\n")
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
