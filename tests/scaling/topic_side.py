"""Writes records of a given age to the input topic, and commits offsets, as publishers and workers would."""

from __future__ import annotations

import time

from kafka.harness import transaction
from support import operating
from support.topics import Topics


def write(topics: Topics, partition: int, *ages_s: float) -> None:
    """Committed records of these ages, in one transaction."""
    now_s = time.time()
    with transaction(topics.bootstrap_servers, f"{topics.group}-upstream") as producer:
        for age_s in ages_s:
            producer.produce(topics.input, b"{}", partition=partition, timestamp=int(1000 * (now_s - age_s)))


def commit(topics: Topics, offsets: dict[int, int]) -> None:
    """Commit offsets for the group."""
    operating.commit(topics.bootstrap_servers, topics.group, topics.input, offsets)
