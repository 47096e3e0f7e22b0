"""`enricher topics create`: creates the topics that a worker needs. `plan_topics` decides, without asking the broker.

Retention stays at the broker's default: how long articles and entities are kept is for those who pay for the disks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table

from enricher.operate.topics.admin import Admin, TopicPlan, TopicView
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import data_console
from enricher.worker.settings import load_settings

DEFAULT_PARTITIONS = 8
MAX_DEFAULT_REPLICAS = 3

_LARGE_MESSAGE_BYTES = 16 * 2**20
"""max.message.bytes of inputs and dead letters; news articles with all their markup stay far below it."""

_KAFKA_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes; with less, the client's default batches of 1 MB would be refused."""

UNPACKED = {"compression.type": "uncompressed"}
"""A setting of the input topic, so that `max.message.bytes` bounds what a worker holds in memory. With Kafka's default,
`producer`, it bounds compressed bytes, and 3 KB of zstd may be 100 MB to a worker. Publishers may still compress."""


def topics_create(
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Partitions of each topic, for workers to share. Default: as the input topic, else {DEFAULT_PARTITIONS}.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Replicas of each partition. Default: one per broker, at most {MAX_DEFAULT_REPLICAS}.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be created, and let the broker validate it.")
    ] = False,
) -> None:
    """Create the input, output and dead-letter topics. Existing ones are left alone; differences are shown."""
    settings = load_settings()
    admin = Admin(kafka_config(settings))
    kafka, articles = settings.kafka, settings.articles
    message_bytes = {
        **dict.fromkeys(kafka.inputs, _LARGE_MESSAGE_BYTES),
        kafka.output_topic: max(_KAFKA_MESSAGE_BYTES, articles.max_record_bytes),
        kafka.dead_letter_topic: max(_LARGE_MESSAGE_BYTES, articles.max_dead_letter_bytes),
    }
    steps = plan_topics(
        message_bytes,
        {name: admin.topic(name) for name in message_bytes},
        inputs=[*kafka.inputs],
        brokers=admin.cluster().brokers,
        partitions=partitions,
        replicas=replication_factor,
    )
    admin.create([step.plan for step in steps if step.plan], dry_run=dry_run)
    table = Table("topic", "result", "partitions", "replicas", "settings")
    for step in steps:
        table.add_row(*_row(step, dry_run=dry_run))
    console = data_console()
    console.print(table)
    if any(step.plan for step in steps):
        console.print("Retention is the broker's default: how long records are kept is your decision.")


@dataclass(frozen=True, slots=True)
class Step:
    """One topic: `plan` to create it, or the `existing` topic and how it `differs` from the plan."""

    name: str
    plan: TopicPlan | None = None
    existing: TopicView | None = None
    differs: str = ""


def plan_topics(
    message_bytes: Mapping[str, int],
    existing: Mapping[str, TopicView | None],
    *,
    inputs: Sequence[str],
    brokers: int,
    partitions: int | None,
    replicas: int | None,
) -> list[Step]:
    """One step per topic; existing topics are left alone.

    `message_bytes`: the least `max.message.bytes` of each topic. All topics get the same number of partitions, because the
    order per key depends on it: `partitions`, or as many as the input topic has (the largest of `inputs`), or 8. Without
    `replicas`, each partition has one replica per broker, at most three.
    """
    present = [topic.partitions for name in inputs if (topic := existing[name])]
    count = partitions or max(present, default=DEFAULT_PARTITIONS)
    copies = replicas or min(MAX_DEFAULT_REPLICAS, brokers)
    return [
        _step(name, existing[name], _plan(name, count, copies, size, UNPACKED if name in inputs else {}))
        for name, size in message_bytes.items()
    ]


def _plan(name: str, partitions: int, replicas: int, message_bytes: int, own: Mapping[str, str]) -> TopicPlan:
    settings = {"max.message.bytes": str(message_bytes), **own}
    if replicas >= 3:
        settings["min.insync.replicas"] = "2"  # one broker may stop, and two have each acknowledged record
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


def _row(step: Step, *, dry_run: bool) -> tuple[str, ...]:
    if step.plan:
        plan = step.plan
        what = "[green]would be created[/]" if dry_run else "[green]created[/]"
        settings = "\n".join(f"{name}={value}" for name, value in plan.settings.items())
        return step.name, what, str(plan.partitions), str(plan.replicas), settings
    topic = step.existing
    assert topic is not None, "a step creates a topic or found one"
    what = f"[yellow]exists, left alone: {step.differs}[/]" if step.differs else "exists, left alone"
    return step.name, what, str(topic.partitions), str(topic.replicas), ""
