"""Samples of a group's committed offsets in a thread, for tests in which they go back for a moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from enricher.errors import BrokerError
from enricher.operate.verify.group_offsets import Cluster, OffsetWatch
from enricher.operate.verify.ledger import Check, Checks
from enricher.worker.kafka.properties import KafkaConfig


@contextmanager
def watching(config: KafkaConfig, *, every_s: float = 0.2) -> Iterator[Check]:
    """Sample the group's committed offsets in a thread while the body runs; the check is complete when it ends.

    A cluster that does not answer only costs samples: brokers may stop and start in the body.
    """
    watch, over = OffsetWatch(config.input_topic, Checks().went_back), threading.Event()
    with closing(Cluster(config)) as cluster:

        def sample() -> None:
            with suppress(BrokerError):
                watch.note(cluster.offsets_now())

        def keep_sampling() -> None:
            while not over.wait(every_s):
                sample()

        thread = threading.Thread(target=keep_sampling, name="offset-watch", daemon=True)
        thread.start()
        try:
            yield watch.check
        finally:
            over.set()
            thread.join()
            sample()
            topic_id = None
            with suppress(BrokerError):
                topic_id = cluster.topic_id(config.input_topic)
            watch.finish(topic_id)
