"""Backlogs for tests that need no broker."""

from __future__ import annotations

from enricher.operate.scaling.backlog import Backlog, PartitionBacklog


def backlog(
    *, done: int, written: int, age_s: float | None = 0.0, workers: int = 1, partitions: int = 1, group: str = "group"
) -> Backlog:
    """A backlog in which all partitions are alike."""
    waiting = written - done
    return Backlog(
        group,
        "articles",
        [
            PartitionBacklog("articles", number, done, 0, done, written, waiting, age_s if waiting else 0.0)
            for number in range(partitions)
        ],
        workers,
    )
