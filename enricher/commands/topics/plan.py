"""Decides which topics to create and how, from what is there. Pure: asks nobody.

Retention is nobody's business here: how long articles and entities are kept is decided by who pays for the disks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enricher.kafka.admin import TopicPlan, TopicView

DEFAULT_PARTITIONS = 8
MAX_DEFAULT_REPLICAS = 3

_LARGE_MESSAGE_BYTES = 16 * 2**20
"""For inputs and dead letters: news articles with all their markup stay far below."""

_KAFKA_MESSAGE_BYTES = 1_048_588
"""Kafka's own default of max.message.bytes; below it, the client's usual batches of 1 MB would be refused."""


UNPACKED = {"compression.type": "uncompressed"}
"""Of the input topic: then `max.message.bytes` bounds what a worker holds in memory. With Kafka's default, `producer`, it
bounds packed bytes only, and 3 KB of zstd are 100 MB to the worker. Publishers may compress all the same."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the worker's settings ask for. Sizes are `max.message.bytes` at least."""

    input: str
    output: str
    dead_letters: str
    max_record_bytes: int
    max_dead_letter_bytes: int

    def message_bytes(self) -> Mapping[str, int]:
        """`max.message.bytes` of each topic, in the order of the way of an article."""
        return {
            self.input: _LARGE_MESSAGE_BYTES,
            self.output: max(_KAFKA_MESSAGE_BYTES, self.max_record_bytes),
            self.dead_letters: max(_LARGE_MESSAGE_BYTES, self.max_dead_letter_bytes),
        }


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one topic: `plan` to create it, or `existing`, and in what it `differs` from what was wanted."""

    name: str
    plan: TopicPlan | None = None
    existing: TopicView | None = None
    differs: str = ""


def plan_topics(
    wanted: Wanted,
    existing: Mapping[str, TopicView | None],
    *,
    brokers: int,
    partitions: int | None,
    replicas: int | None,
) -> list[Step]:
    """One step per topic. What exists is left alone.

    All get the same number of partitions, because only then the order per key is kept: `partitions`, or as many as the
    input topic has, or 8. `replicas`: None means as many as there are brokers, three at most.
    """
    present = existing[wanted.input]
    count = partitions or (present.partitions if present else DEFAULT_PARTITIONS)
    copies = replicas or min(MAX_DEFAULT_REPLICAS, brokers)
    return [
        _step(name, existing[name], _plan(name, count, copies, size, UNPACKED if name == wanted.input else {}))
        for name, size in wanted.message_bytes().items()
    ]


def _plan(name: str, partitions: int, replicas: int, message_bytes: int, own: Mapping[str, str]) -> TopicPlan:
    settings = {"max.message.bytes": str(message_bytes), **own}
    if replicas >= 3:
        settings["min.insync.replicas"] = "2"  # one broker may stop, and no acknowledged record hangs on a single one
    return TopicPlan(name, partitions, replicas, settings)


def _step(name: str, existing: TopicView | None, plan: TopicPlan) -> Step:
    if existing is None:
        return Step(name, plan=plan)
    differences = []
    if existing.partitions != plan.partitions:
        differences.append(f"has {existing.partitions} partitions, not {plan.partitions}")
    if existing.replicas != plan.replicas:
        differences.append(f"has {existing.replicas} replicas, not {plan.replicas}")
    return Step(name, existing=existing, differs="; ".join(differences))
