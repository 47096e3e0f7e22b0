"""Empty topics that the broker knows already: creating returns when the controller has decided, a moment earlier."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from tools.bench.bench import PARTITIONS, Bench, Topics

_KNOWN_S = 10.0


@contextmanager
def empty_topics(bench: Bench, *, partitions: int = PARTITIONS) -> Iterator[Topics]:
    """Three empty topics, ready for a worker. Raises TimeoutError."""
    with bench.topics(partitions=partitions) as topics:
        admin = AdminClient({"bootstrap.servers": bench.cluster.bootstrap_servers})
        deadline_s = time.monotonic() + _KNOWN_S
        while any(admin.list_topics(name, timeout=_KNOWN_S).topics[name].error for name in topics.all):
            if time.monotonic() > deadline_s:
                message = f"the broker does not know its new topics after {_KNOWN_S:g} s"
                raise TimeoutError(message)
            time.sleep(0.02)
        yield topics
