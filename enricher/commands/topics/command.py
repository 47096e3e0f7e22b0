"""The command `topics create`: asks the cluster, lets `plan` decide, creates, and says what it did."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from enricher.commands.console import data_console
from enricher.commands.topics.plan import DEFAULT_PARTITIONS, MAX_DEFAULT_REPLICAS, Step, Wanted, plan_topics
from enricher.kafka.admin import Admin
from enricher.settings import Settings, load_settings


def topics_create(
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Partitions of each topic: workers share them. Default: as the input topic, else {DEFAULT_PARTITIONS}.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Copies of each partition. Default: one per broker, {MAX_DEFAULT_REPLICAS} at most.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be created, and ask the broker whether it would do it.")
    ] = False,
) -> None:
    """Create the input, output and dead-letter topics. Those that exist are left alone, and differences are shown."""
    from enricher.app import kafka_config  # noqa: PLC0415  it loads the inference room, which --help need not wait for

    settings = load_settings()
    admin = Admin(kafka_config(settings))
    wanted = _wanted(settings)
    steps = plan_topics(
        wanted,
        {name: admin.topic(name) for name in wanted.message_bytes()},
        brokers=admin.cluster().brokers,
        partitions=partitions,
        replicas=replication_factor,
    )
    admin.create([step.plan for step in steps if step.plan], dry_run=dry_run)
    _show(steps, dry_run=dry_run)


def _wanted(settings: Settings) -> Wanted:
    return Wanted(
        input=settings.kafka.input_topic,
        output=settings.kafka.output_topic,
        dead_letters=settings.kafka.dead_letter_topic,
        max_record_bytes=settings.articles.max_record_bytes,
        max_dead_letter_bytes=settings.articles.max_dead_letter_bytes,
    )


def _show(steps: Sequence[Step], *, dry_run: bool) -> None:
    table = Table("topic", "what", "partitions", "replicas", "settings")
    for step in steps:
        table.add_row(*_row(step, dry_run=dry_run))
    console = data_console()
    console.print(table)
    if any(step.plan for step in steps):
        console.print("Retention is left to the broker's default: how long a record is kept is yours to decide.")


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
