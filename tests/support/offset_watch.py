"""Samples of a group's committed offsets in a thread, for tests in which they go back for a moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from enricher.errors import BrokerError
from enricher.operate.verify.contract import same_topic
from enricher.operate.verify.ledger import Check, Place
from enricher.operate.verify.verification import Cluster, Committed, CommittedOffset
from enricher.worker.kafka.properties import KafkaConfig


class OffsetWatch:
    """Takes samples of a group's committed offsets in one topic, and fails `check` for each that went back.

    Kafka removes the offsets of a deleted topic, so a missing offset is judged when there is one again, or at the end, by
    the topic's id.
    """

    def __init__(self, topic: str) -> None:
        self.check = Check("went back", "committed offsets never went back while they were watched")
        self._topic = topic
        self._last: dict[int, CommittedOffset] = {}
        self._gone: set[int] = set()

    def note(self, committed: Committed) -> None:
        """Take the next sample. Counts every partition that has an earlier sample as checked."""
        for partition, place in committed.items():
            self.check.checked += partition in self._last
            if place is not None:
                self._compare(partition, place)
            elif partition in self._last:
                self._gone.add(partition)

    def finish(self, topic_id: str | None) -> None:
        """Judge the offsets that are still missing, by the topic's id now (None: unknown)."""
        gone, self._gone = self._gone, set()
        for partition in sorted(gone):
            if same_topic(self._last.pop(partition).topic_id, topic_id):
                self._fail(partition, 0)

    def _compare(self, partition: int, place: CommittedOffset) -> None:
        last, self._last[partition] = self._last.get(partition), place
        was_gone = partition in self._gone
        self._gone.discard(partition)
        if last is None or not same_topic(last.topic_id, place.topic_id):
            return
        if was_gone:
            self._fail(partition, 0)
        elif place.offset < last.offset:
            self._fail(partition, place.offset)

    def _fail(self, partition: int, offset: int) -> None:
        self.check.fail(Place(self._topic, partition, offset))


@contextmanager
def watching(config: KafkaConfig, *, every_s: float = 0.2) -> Iterator[Check]:
    """Sample the group's committed offsets in a thread while the body runs; the check is complete when it ends.

    A cluster that does not answer only costs samples: brokers may stop and start in the body.
    """
    watch, over = OffsetWatch(config.input_topic), threading.Event()
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
