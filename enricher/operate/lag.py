"""`enricher lag`: how far a group is behind, and how old its oldest unprocessed record is.

It only asks: it joins no group, commits nothing and moves no offsets. It needs READ on the input topic and DESCRIBE on the
group (READ includes it), which is less than a worker has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated

import orjson
import typer
from confluent_kafka import KafkaError
from rich.markup import escape
from rich.table import Column, Table

from enricher.errors import BrokerError
from enricher.operate.inspector import Inspector
from enricher.worker.commands.console import data_console, write_line
from enricher.worker.kafka.errors import Complaint, broker_errors
from enricher.worker.kafka.metadata import partition_of, raw_record
from enricher.worker.kafka.partition import DAMAGED
from enricher.worker.kafka.partition_reader import END_OF_PARTITION, NO_END, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import RawRecord
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.deadlines import Deadline
from enricher.worker.settings import load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

BEHIND = 9
"""The exit code if the group is further behind than allowed."""

_ONE_RECORD = {
    # One record of each partition is wanted, but a broker sends whole batches.
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
}


def lag(
    *,
    max_age_s: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Exit with code 9 if a record has waited longer, or its age is unknown."
        ),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Exit with code 9 if the group is more than N offsets behind."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show how far the group is behind, and the age of the oldest unprocessed record. Only reads.

    The age is that of the record at the committed offset, by its own timestamp. The lag is counted in offsets, and the
    markers of transactions take some of them; where only markers are left, lag and age are 0. The command joins no group.

    Exit code: 0, or 9 if further behind than allowed, 2 for settings, 4 for the broker. It needs READ on the input topic
    and DESCRIBE on the group.
    """
    backlog = read_backlog(kafka_config(load_settings()))
    exceeded = limits_exceeded(backlog, max_age_s, max_lag)
    if as_json:
        write_line(orjson.dumps(backlog.as_json() | {"exceeded": exceeded}, option=orjson.OPT_INDENT_2))
    else:
        console = data_console()
        console.print(_table(backlog))
        console.print(summary(backlog), soft_wrap=True)
        for text in exceeded:
            console.print(f"[bold red]too far behind[/]: {text}", soft_wrap=True)
    raise typer.Exit(BEHIND if exceeded else 0)


def limits_exceeded(backlog: Backlog, max_age_s: float | None, max_lag: int | None) -> list[str]:
    """A sentence for each limit that is exceeded; None is no limit. An unknown age exceeds any, so that alarms see it."""
    found = []
    if max_age_s is not None and backlog.age_s is None:
        found.append("a record waits whose age is unknown: it has no timestamp, or cannot be read")
    elif max_age_s is not None and backlog.age_s is not None and backlog.age_s > max_age_s:
        found.append(f"the oldest record has waited for {backlog.age_s:.1f} s, {max_age_s:g} s are allowed")
    if max_lag is not None and backlog.behind > max_lag:
        found.append(f"the group is {backlog.behind} behind, {max_lag} are allowed")
    return found


def summary(backlog: Backlog) -> str:
    """All partitions in one line, with markup."""
    who = escape(f"group {backlog.group} on {backlog.topic}")
    workers = f"{backlog.workers} worker{'' if backlog.workers == 1 else 's'}"
    if not backlog.waiting_partitions:
        return f"[green]nothing waits[/]: {who}, {workers}"
    of = f"{backlog.waiting_partitions} of {len(backlog.partitions)} partitions"
    return f"{backlog.behind:,} behind in {of}, the oldest record for {age_text(backlog.age_s)}: {who}, {workers}"


def age_text(age_s: float | None) -> str:
    """An age as `4.2 s`, `0:03:05` or `2 days, 4:00:01`."""
    if age_s is None:
        return "unknown (no timestamp, or it cannot be read)"
    return f"{age_s:.1f} s" if age_s < 60 else str(timedelta(seconds=int(age_s)))


def _table(backlog: Backlog) -> Table:
    right = [Column(name, justify="right") for name in ("partition", "committed", "end", "behind", "age")]
    several = len({each.topic for each in backlog.partitions}) > 1
    table = Table(*(["topic"] if several else []), *right, "")
    for each in backlog.partitions:
        committed = "-" if each.committed is None else f"{each.committed:,}"
        age = age_text(each.age_s) if each.waits else ""
        table.add_row(
            *([escape(each.topic)] if several else []),
            f"{each.number}",
            committed,
            f"{each.end:,}",
            f"{each.behind:,}",
            age,
            escape(each.remark),
        )
    return table


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One partition of an input topic, and how far the group has come in it. Offsets, not records."""

    topic: str
    number: int
    committed: int | None
    """The group's offset here; None if it never committed one, or if that has expired."""
    worker_start: int
    """The offset at which a worker that starts now begins."""
    end: int
    """The last stable offset: a worker may read up to here."""
    behind: int
    """Offsets from the first unprocessed record to the end; 0 if only transaction markers are left."""
    age_s: float | None
    """Age of the first unprocessed record: 0 if there is none or its timestamp lies ahead, None if it has no timestamp."""
    hidden: int = 0
    """Offsets at or after `end` that transactions which are still open hold back."""

    @property
    def waits(self) -> bool:
        """True if there is an unprocessed record."""
        return self.behind > 0

    @property
    def remark(self) -> str:
        """A remark for people on what is unusual about the partition; empty if nothing is."""
        remarks = []
        if self.committed is None:
            remarks.append(
                f"no committed offset: a new group starts at {self.worker_start}; one that has outputs refuses"
            )
        elif self.committed < self.worker_start:
            remarks.append(f"{self.worker_start - self.committed} offsets were deleted unread")
        elif self.committed > self.worker_start:
            remarks.append(
                "the committed offset lies beyond the end: the topic was created again, and workers refuse to read it "
                "before `enricher offsets set`"
            )
        if self.hidden:
            remarks.append(f"{self.hidden} offsets in transactions that are still open")
        return "; ".join(remarks)


@dataclass(frozen=True, slots=True)
class Backlog:
    """All partitions at one moment. `workers`: members of the group."""

    group: str
    topic: str
    """The input topic; several with commas between them."""
    partitions: Sequence[PartitionBacklog]
    workers: int

    @property
    def behind(self) -> int:
        """Sum over the partitions."""
        return sum(partition.behind for partition in self.partitions)

    @property
    def waiting_partitions(self) -> int:
        """The number of partitions with an unprocessed record."""
        return sum(partition.waits for partition in self.partitions)

    @property
    def age_s(self) -> float | None:
        """Age of the oldest unprocessed record, 0 if there is none; None if one has no timestamp."""
        ages = [partition.age_s for partition in self.partitions]
        return None if None in ages else max((age_s for age_s in ages if age_s is not None), default=0.0)

    def as_json(self) -> dict[str, object]:
        """The object printed by `--json`; its keys are the names of the attributes."""
        return {
            "group": self.group,
            "topic": self.topic,
            "behind": self.behind,
            "age_s": self.age_s,
            "waiting_partitions": self.waiting_partitions,
            "workers": self.workers,
            "partitions": [asdict(partition) | {"remark": partition.remark} for partition in self.partitions],
        }


def read_backlog(config: KafkaConfig) -> Backlog:
    """The backlog of the group on the input topics of `config` now. Blocks for at most the request timeout.

    Raises BrokerError, and SettingsError if librdkafka rejects the properties.
    """
    complaint = Complaint(config)
    with closing(Inspector(config, complaint)) as ask, ask.within(config.request_timeout_s) as deadline:
        find = partial(_first_records, config, complaint, deadline)
        partitions = [each for topic in config.inputs for each in _partitions(topic, ask, find)]
        return Backlog(config.group_id, ",".join(config.inputs), partitions, ask.members())


FirstRecords = Callable[[str, Mapping[int, int]], Mapping[int, RawRecord]]


def _partitions(topic: str, ask: Inspector, first_records: FirstRecords) -> Sequence[PartitionBacklog]:
    numbers = ask.partitions(topic)
    # In this order, progress made meanwhile counts as unprocessed, and never the other way round.
    committed = _committed_offsets(topic, numbers, ask)
    firsts = ask.beginnings(topic, numbers)
    ends, written = (ask.ends(topic, numbers, committed_only=only) for only in (True, False))
    starts = {
        n: _start(firsts[n] if offset is None else offset, firsts[n], written[n]) for n, offset in committed.items()
    }
    oldest = first_records(topic, {n: at for n, at in starts.items() if at < ends[n]})
    now_s = time.time()
    return [
        PartitionBacklog(
            topic=topic,
            number=n,
            committed=committed[n],
            worker_start=start,
            end=ends[n],
            behind=max(0, ends[n] - record.offset) if (record := oldest.get(n)) else 0,
            age_s=_age_s(record, now_s),
            hidden=max(0, written[n] - ends[n]),
        )
        for n, start in sorted(starts.items())
    ]


def _committed_offsets(topic: str, numbers: Sequence[int], ask: Inspector) -> dict[int, int | None]:
    """The offsets, None where there is none or one of an earlier topic."""
    answer = ask.committed_offsets(topic, numbers)
    topic_id = ask.topic_id(topic)
    return {
        tp.partition: tp.offset if tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id) else None
        for tp in answer
    }


def _first_records(
    config: KafkaConfig, complaint: Complaint, deadline: Deadline, topic: str, starts: Mapping[int, int]
) -> Mapping[int, RawRecord]:
    """The first committed record at or after each offset; partitions without one are left out. Raises BrokerError.

    A batch that cannot be read counts as a record at the offset that was asked for, without a timestamp.
    """
    found: dict[int, RawRecord] = {}
    doing, ranges = f"reading '{topic}'", {number: (start, NO_END) for number, start in starts.items()}
    with closing(lone_reader(config, complaint, _ONE_RECORD)) as reader:
        with broker_errors(reader.consumer, doing, complaint):
            for message in reader.read(topic, ranges, partial(may_pass, taken=DAMAGED), deadline=deadline):
                if message is None:
                    continue
                number, error = message.partition() or 0, message.error()
                if error is None:
                    found[number] = raw_record(message)
                elif error.code() != END_OF_PARTITION:
                    found[number] = RawRecord(partition_of(message), starts[number], None, None)
                reader.finish(number)
        if reader.left:
            names = ", ".join(map(str, sorted(reader.left)))
            timeout = KafkaError(KafkaError._TIMED_OUT, f"{doing}: no answer in time from partitions {names}")  # noqa: SLF001  the client's name
            raise BrokerError(complaint.explain(timeout))
    return found


def _start(committed: int, first: int, written: int) -> int:
    """The offset at which a worker begins: the committed one, or at the first offset left if there is nothing at it."""
    return committed if first <= committed <= written else first


def _age_s(record: RawRecord | None, now_s: float) -> float | None:
    if record is None:
        return 0.0
    return None if record.timestamp_s is None else max(0.0, now_s - record.timestamp_s)
