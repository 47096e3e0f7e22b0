"""Waits while workers run: samples committed offsets, lets the group catch up, and lets open transactions end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress

from enricher.errors import BrokerError
from enricher.operate.verify.cluster import Cluster
from enricher.operate.verify.committed import of_topic
from enricher.operate.verify.findings import Check, Checks, Place
from enricher.operate.verify.watch import Fall, OffsetWatch
from enricher.worker.kafka.reading.ranges import Progress
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline, until

log = logging.getLogger(__name__)

_SAMPLE_EVERY_S = 0.2
_ASK_AGAIN_S = 0.1


@contextmanager
def watching(config: KafkaConfig, *, every_s: float = _SAMPLE_EVERY_S) -> Iterator[Check]:
    """Sample the group's committed offsets in a thread while the body runs; the check is complete when it ends.

    A cluster that does not answer only costs samples: brokers may stop and start in the body.
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
            topic_id = None
            with suppress(BrokerError):
                topic_id = cluster.topic_id(config.input_topic)
            _warn(watch.finish(topic_id))


def watch_for(seconds: float, cluster: Cluster, watch: OffsetWatch, progress: Progress) -> None:
    """Sample committed offsets for that long."""
    deadline = Deadline(seconds)

    def done() -> bool:
        _sample(cluster, watch)
        progress("watching", int(seconds - deadline.left_s()), int(seconds))
        return False

    until(done, deadline, pause_s=_SAMPLE_EVERY_S)


def wait_for_group(
    topic: str, seconds: float, cluster: Cluster, watch: OffsetWatch, progress: Progress
) -> dict[int, int]:
    """Sample until the group has committed everything that is in `topic` now, for at most `seconds`.

    Returns the ends of the partitions where it has not. Offsets of an earlier topic of this name do not count.
    """
    topic_id = cluster.topic_id(topic)
    low, ends = cluster.beginnings(topic), cluster.ends(topic, committed_only=True)
    left = {number: end for number, end in ends.items() if end > low[number]}
    total = sum(left.values())

    def done() -> bool:
        committed = cluster.offsets_now()
        watch.note(committed)
        offsets = of_topic(committed, topic_id)
        for number in [number for number, end in left.items() if (offsets.get(number) or 0) >= end]:
            del left[number]
        progress("waiting for the group", total - sum(left.values()), total)
        return not left

    until(done, Deadline(seconds), pause_s=_SAMPLE_EVERY_S)
    return left


def stable_ends(
    topics: Iterable[str], cluster: Cluster, *, timeout_s: float, check: Check, progress: Progress
) -> dict[str, dict[int, int]]:
    """The ends of the topics' partitions as they are now, once committed readers can read that far.

    If they still cannot after `timeout_s`, a transaction was left open: that fails `check`, and the end is the last stable
    offset. Newer transactions that are open behind these ends do not matter.
    """
    ends = {topic: cluster.ends(topic, committed_only=False) for topic in topics}
    deadline = Deadline(timeout_s)
    for topic, wanted in ends.items():
        check.checked += len(wanted)
        for number, stable in _has_reached(topic, wanted, cluster, deadline, progress).items():
            if stable < wanted[number]:
                check.fail(Place(topic, number, stable))
                wanted[number] = stable
    return ends


def _has_reached(
    topic: str, wanted: dict[int, int], cluster: Cluster, deadline: Deadline, progress: Progress
) -> dict[int, int]:
    """The last stable offsets, once they have reached `wanted` or the time is over."""
    stable: dict[int, int] = {}

    def done() -> bool:
        stable.update(cluster.ends(topic, committed_only=True))
        ready = sum(stable[number] >= end for number, end in wanted.items())
        if ready < len(wanted):
            progress(f"waiting for open transactions of {topic}, partitions", ready, len(wanted))
        return ready == len(wanted)

    until(done, deadline, pause_s=_ASK_AGAIN_S)
    return {number: stable[number] for number in wanted}


def _sample(cluster: Cluster, watch: OffsetWatch) -> None:
    with suppress(BrokerError):
        _warn(watch.note(cluster.offsets_now()))


def _warn(falls: Iterable[Fall]) -> None:
    for fall in falls:
        log.warning("the committed offset went back: %s", fall)
