"""Samples committed offsets while workers run, and waits for them to catch up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager

from enricher.errors import BrokerError
from enricher.kafka.client import KafkaConfig
from enricher.verify.cluster import Cluster
from enricher.verify.committed import of_topic
from enricher.verify.findings import Check, Checks
from enricher.verify.reading import Progress
from enricher.verify.watch import Fall, OffsetWatch

log = logging.getLogger(__name__)

SAMPLE_EVERY_S = 0.2


@contextmanager
def watching(config: KafkaConfig, *, every_s: float = SAMPLE_EVERY_S) -> Iterator[Check]:
    """Sample the group's committed offsets in a thread while the body runs; the check is complete when it ends.

    A cluster that does not answer costs samples and nothing else: brokers may come and go in the body.
    """
    check = Checks().went_back
    watch = OffsetWatch(config.input_topic, check)
    over = threading.Event()
    with closing(Cluster(config)) as cluster:

        def sample() -> None:
            while not over.wait(every_s):
                _sample(cluster, watch)

        thread = threading.Thread(target=sample, name="offset-watch", daemon=True)
        thread.start()
        try:
            yield check
        finally:
            over.set()
            thread.join()
            _sample(cluster, watch)
            _finish(config.input_topic, cluster, watch)


def watch_for(seconds: float, cluster: Cluster, watch: OffsetWatch, progress: Progress) -> None:
    """Sample for so long."""
    _until(lambda: False, seconds, cluster, watch, lambda done_s: progress("watching", int(done_s), int(seconds)))


def wait_for_group(
    topic: str, seconds: float, cluster: Cluster, watch: OffsetWatch, progress: Progress
) -> dict[int, int]:
    """Sample until the group has committed what is in `topic` now, for at most `seconds`.

    Returns the ends of the partitions where it has not. What it has committed of an earlier topic of this name is nothing.
    """
    topic_id = cluster.topic_id(topic)
    low, ends = cluster.beginnings(topic), cluster.ends(topic, committed_only=True)
    left = {number: end for number, end in ends.items() if end > low[number]}
    total = sum(left.values())

    def done() -> bool:
        committed = cluster.committed()
        watch.note(committed)
        offsets = of_topic(committed, topic_id)
        for number in [number for number, end in left.items() if (offsets.get(number) or 0) >= end]:
            del left[number]
        return not left

    _until(done, seconds, None, watch, lambda _: progress("waiting for the group", total - sum(left.values()), total))
    return left


def _finish(topic: str, cluster: Cluster, watch: OffsetWatch) -> None:
    try:
        topic_id = cluster.topic_id(topic)
    except BrokerError:
        topic_id = None
    _warn(watch.finish(topic_id))


def _until(
    done: Callable[[], bool], seconds: float, cluster: Cluster | None, watch: OffsetWatch, tell: Callable[[float], None]
) -> None:
    start_s = time.monotonic()
    while not done() and (elapsed_s := time.monotonic() - start_s) < seconds:
        if cluster:
            _sample(cluster, watch)
        tell(elapsed_s)
        time.sleep(min(SAMPLE_EVERY_S, max(seconds - elapsed_s, 0)))


def _sample(cluster: Cluster, watch: OffsetWatch) -> None:
    try:
        falls = watch.note(cluster.committed())
    except BrokerError:
        return
    _warn(falls)


def _warn(falls: Iterable[Fall]) -> None:
    for fall in falls:
        log.warning("the committed offset went back: %s", fall)
