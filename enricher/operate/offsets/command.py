"""The command `offsets set`: prints what changes, and commits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from confluent_kafka import TopicPartition

from enricher.errors import BrokerError, SettingsError
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.offsets.behind_outputs import BehindOutputs
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import Ticker, remark_console, write_line
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.lone_consumers import commit_as_outsider
from enricher.worker.records import Mark
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.settings import load_settings


def offsets_set(
    group: Annotated[str, typer.Argument(help="The consumer group. It must have no members.")],
    topic: Annotated[str, typer.Argument(help="The input topic.")],
    *,
    at: Annotated[
        str, typer.Option("--at", metavar="beginning|end|behind-outputs|FILE", help="Where the group goes on.")
    ],
    partition: Annotated[
        list[int] | None, typer.Option(min=0, show_default=False, help="Only this partition; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and commit nothing.")] = False,
) -> None:
    """Set the committed offsets of a group that has no members, and print each partition with its old and new offset.

    `beginning` is the first offset that retention has left: everything is enriched again. `end` is that of now: what is
    there and not yet enriched stays so. `behind-outputs` is for a group that has lost its offsets: it searches the output
    topics of the settings for the newest output of each partition, and goes on behind it, or at the beginning if there is
    none; if compaction or retention may have removed the newest, it refuses. A FILE has what `--dry-run` prints, edited: a
    JSON object per line, such as `{"partition": 3, "to": 4711}`.

    Exit code: 0; 1 if the group has members; 2 for settings and the file; 4 for the broker, or if the outputs cannot tell.
    It needs READ on the group and on the topic; `behind-outputs` also READ on the output topics.
    """
    config = replace(kafka_config(load_settings()).of_input(topic), group_id=group)
    complaint = Complaint(config)
    with closing(Inspector(config, complaint, stable=True)) as ask, Ticker(remark_console()) as ticker:
        numbers = _chosen(topic, ask.partitions(topic), partition)
        before = {tp.partition: tp for tp in ask.committed_offsets(topic, numbers)}
        match at:
            case "beginning":
                to = ask.beginnings(topic, numbers)
            case "end":
                to = ask.ends(topic, numbers, committed_only=True)
            case "behind-outputs":
                found = BehindOutputs(config, ask, ticker.show_step).next_offsets(numbers)
                to = {**ask.beginnings(topic, numbers), **found}
            case file:
                to = _offsets_in(Path(file))
                _chosen(topic, numbers, [*to])
                _require_inside(ask, topic, to)
        topic_id = ask.topic_id(topic)
        for number, offset in sorted(to.items()):
            old = before[number].offset
            write_line(orjson.dumps({"partition": number, "from": old if old >= 0 else None, "to": offset}))
        if not dry_run:
            commit_as_outsider(config, complaint, [_commit_of(before[n], offset, topic_id) for n, offset in to.items()])


def _commit_of(before: TopicPartition, offset: int, topic_id: str | None) -> TopicPartition:
    """The offset with what stood beside the one before, but for attempts: those were made somewhere else."""
    old = CommitMetadata.decode(before.metadata)
    kept = old if before.offset >= 0 and old.is_of(topic_id) else CommitMetadata()
    metadata = replace(kept, topic_id=topic_id, mark=Mark()).encode()
    return TopicPartition(before.topic, before.partition, offset, metadata=metadata)


def _chosen(topic: str, there: Sequence[int], wanted: Sequence[int] | None) -> Sequence[int]:
    if unknown := {*(wanted or ())} - {*there}:
        raise SettingsError(
            f"the topic '{topic}' has {len(there)} partitions, not {', '.join(map(str, sorted(unknown)))}"
        )
    return sorted({*wanted}) if wanted else there


def _offsets_in(file: Path) -> dict[int, int]:
    """Partitions and offsets of a file. Raises SettingsError."""
    found: dict[int, int] = {}
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"--at {file}: {error.strerror}. It is beginning, end, behind-outputs or a file") from error
    for count, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: Any = orjson.loads(line)
            number, offset = row["partition"], row["to"]
        except (orjson.JSONDecodeError, TypeError, KeyError) as error:
            raise SettingsError(f'{file}, line {count}: expected {{"partition": 3, "to": 4711}}') from error
        if not (type(number) is int and type(offset) is int) or number in found:
            raise SettingsError(f"{file}, line {count}: partition and offset are whole numbers, each partition once")
        found[number] = offset
    return found


def _require_inside(ask: Inspector, topic: str, to: Mapping[int, int]) -> None:
    """Raise BrokerError for offsets that the topic does not have: a worker would begin somewhere else."""
    lows, ends = ask.beginnings(topic, [*to]), ask.ends(topic, [*to], committed_only=False)
    for number, offset in to.items():
        if not lows[number] <= offset <= ends[number]:
            raise BrokerError(f"{topic}[{number}] has offsets {lows[number]} to {ends[number]}, not {offset}")
