"""Waits until the ends of topics are stable: until every transaction that was open has come to its end."""

from __future__ import annotations

import time
from collections.abc import Iterable

from enricher.verify.cluster import Cluster
from enricher.verify.findings import Check, Place
from enricher.verify.reading import Progress

_LOOK_AGAIN_S = 0.1


def stable_ends(
    topics: Iterable[str], cluster: Cluster, *, timeout_s: float, check: Check, progress: Progress
) -> dict[str, dict[int, int]]:
    """The ends of the topics' partitions as they are now, once committed readers can read up to there.

    Where they still cannot after `timeout_s`, a transaction is left open: a violation of `check`, and the end is the last
    stable offset. On a live topic newer transactions may be open behind the end; they are not looked at.
    """
    ends = {topic: cluster.ends(topic, committed_only=False) for topic in topics}
    give_up_s = time.monotonic() + timeout_s
    for topic, wanted in ends.items():
        check.checked += len(wanted)
        for number, stable in _reached(topic, wanted, cluster, give_up_s, progress).items():
            if stable < wanted[number]:
                check.fail(Place(topic, number, stable))
                wanted[number] = stable
    return ends


def _reached(
    topic: str, wanted: dict[int, int], cluster: Cluster, give_up_s: float, progress: Progress
) -> dict[int, int]:
    """The last stable offsets, when they have reached what is wanted or the time is over."""
    while True:
        stable = cluster.ends(topic, committed_only=True)
        ready = sum(stable[number] >= end for number, end in wanted.items())
        if ready == len(wanted) or time.monotonic() > give_up_s:
            return {number: stable[number] for number in wanted}
        progress(f"waiting for open transactions of {topic}, partitions", ready, len(wanted))
        time.sleep(_LOOK_AGAIN_S)
