"""`enricher publish` writes JSON lines to the input topic, one at a time, so that no file is held in memory.

The worker itself writes only through its sink.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from enricher.errors import BrokerError, FatalError, InvalidArticle, SettingsError
from enricher.worker.articles import DeleteEvents, FieldMapping
from enricher.worker.articles.formats import read_document
from enricher.worker.articles.mapping import HEADER
from enricher.worker.commands.console import Ticker, remark_console
from enricher.worker.commands.topic_options import InputOption, with_one_input
from enricher.worker.files import STDIN, Line, read_lines
from enricher.worker.kafka.errors import Complaint, mapping_errors, new_client, without_recovery
from enricher.worker.kafka.metadata import no_such_topic
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Partition, RawRecord
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.formats import delete_events, line_mapping
from enricher.worker.wiring.kafka_clients import kafka_config

Record = tuple[bytes | None, bytes | None]
"""Key and value."""

_DRAIN_STEP_S = 0.5
_LINES = Partition("lines", 0)
MAX_LINE_BYTES = 32 * 2**20
"""Twice what our topics take in one message; a longer line is hardly JSON lines, and would have to be held in memory."""
_LOST_AFTER_MS = 60_000  # the client's default of 5 minutes is long for a person at a terminal


def publish(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", help="JSON lines, one article each; `-` is standard input."),
    ] = None,
    *,
    tombstones: Annotated[
        list[str] | None,
        typer.Option("--tombstone", metavar="KEY", help="Delete the article of this key. Repeat it for several."),
    ] = None,
    input_topic: InputOption = None,
) -> None:
    """Publish articles to the input topic, with the article's id as key; `articles.fields` says where the id is.

    Instead of files, --tombstone publishes a null value for a key, which deletes its article downstream. It goes to the
    partition of that key's articles, if their publisher has murmur2 as partitioner, like this command and Java's clients.

    A line without an id that the worker accepts is left out and named at the end, with exit code 1. Other lines that are
    not valid articles are published too; the worker makes dead letters of them.
    """
    settings = with_one_input(load_settings(), input_topic)
    if tombstones:
        records = _deletes(tombstones, alone=not files)
    else:
        lines, mapping = _lines(settings, files or ()), line_mapping(settings)
        deletes = delete_events(settings, mapping)
    config = kafka_config(settings)
    publisher = Publisher(config, config.input_topic)
    what = "tombstones" if tombstones else "articles"
    sending = _Sending(publisher, what)
    try:
        with Ticker(remark_console()) as ticker:
            sending.send(records if tombstones else sending.with_keys(lines, mapping, deletes), ticker)
    finally:
        remark_console().print(sending.summary())
    if failures := publisher.failures:
        reasons = "; ".join(f"{count:,} x {reason}" for reason, count in failures.most_common(3))
        raise BrokerError(
            f"{failures.total():,} of {sending.sent:,} {what} were not published to '{config.input_topic}': {reasons}"
        )
    if sending.refused:
        raise FatalError(f"{sending.refused:,} lines were not published: {sending.first_refused}")


def _deletes(keys: Sequence[str], *, alone: bool) -> Iterator[Record]:
    """A tombstone for each key, as the shell gave it. `alone`: there are no files. Raises SettingsError."""
    if not alone:
        raise SettingsError("--tombstone goes without files; publish files in a run before")
    if not all(keys):
        raise SettingsError("--tombstone needs a key, and this one is empty: is a variable of the shell not set?")
    return ((os.fsencode(key), None) for key in keys)


def _lines(settings: Settings, files: Sequence[Path]) -> Iterator[Line]:
    """The lines of the files. Raises SettingsError and FatalError before the first one."""
    if not files:
        raise SettingsError("nothing to publish: name files, `-` for standard input, or --tombstone KEY")
    _require_id(settings)
    require_files(files)
    return lines_in(files)


def _require_id(settings: Settings) -> None:
    """Refuse settings that would make a dead letter of every article. Raises SettingsError."""
    if (where := settings.articles.fields.get("id", "")).startswith(HEADER):
        message = f"articles.fields takes the id from {where}, and publish writes no headers: leave out id, or say key"
        raise SettingsError(message)


class _Sending:
    """One run: sends, and counts."""

    def __init__(self, publisher: Publisher, what: str) -> None:
        self._publisher = publisher
        self._what = what
        self._began_s = time.monotonic()
        self.sent = 0
        self.refused = 0
        """Lines that were left out, because they have no id that a worker accepts."""
        self.first_refused = ""
        """The first line that was left out: its place, and the reason."""

    def with_keys(self, lines: Iterator[Line], mapping: FieldMapping, deletes: DeleteEvents | None) -> Iterator[Record]:
        """The records of the lines. Those without an id that a worker accepts are left out and counted."""
        for line in lines:
            try:
                yield key_of(line.value, mapping, deletes), line.value
            except InvalidArticle as error:
                self.first_refused = self.first_refused or f"{place_of(line)}: {error}"
                self.refused += 1

    def send(self, records: Iterator[Record], ticker: Ticker) -> None:
        """Send each record."""
        for key, value in records:
            self._publisher.send(key, value)
            self.sent += 1
            ticker.tick(self.summary)
        while self._publisher.drain(_DRAIN_STEP_S):
            ticker.tick(self.summary)

    def summary(self) -> str:
        """The counts so far, in a line."""
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        done, megabytes = self._publisher.delivered, self._publisher.delivered_bytes / 1e6
        failed = self._publisher.failures.total()
        text = f"{done:,} {self._what}, {megabytes:,.1f} MB, {done / elapsed_s:,.0f}/s, {elapsed_s:.1f} s"
        text += f", {self.refused:,} refused" if self.refused else ""
        return f"{text}, {failed:,} failed" if failed else text


def require_files(paths: Sequence[Path]) -> None:
    """Raise FatalError where a file is missing, before anything is sent."""
    for path in paths:
        if path != STDIN and (not path.exists() or path.is_dir()):
            raise FatalError(f"there is no file {path}")


def lines_in(paths: Sequence[Path]) -> Iterator[Line]:
    """Every line that is not blank, one path after the other; what is packed with gzip is unpacked. Raises FatalError."""
    for path in paths:
        name = "standard input" if path == STDIN else str(path)
        try:
            with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as stream:
                items = read_lines(stream, name, max_line_bytes=MAX_LINE_BYTES)
                yield from (item for item in items if isinstance(item, Line))
        except OSError as error:
            raise FatalError(f"cannot read {name}: {error}") from error


def place_of(line: Line) -> str:
    """The place of a line, for messages."""
    return f"{line.source}, line {line.number + 1}"


def key_of(value: bytes, mapping: FieldMapping, deletes: DeleteEvents | None = None) -> bytes:
    """The key under which a line is published: the id of its article, or of the article that it deletes.

    Raises InvalidArticle for a line without an id that a worker accepts.
    """
    document = read_document(value, sys.maxsize)
    if deletes and deletes.is_delete(document):
        mapping = deletes.ids
    # A line as a record, which has neither key nor headers.
    return mapping.id_text(document, RawRecord(_LINES, 0, None, value)).encode()


# For throughput: some lingering to fill batches, and a queue of bounded memory. The partitioner is the Java clients'
# default, so a key stays on its partition whichever client writes it.
_BULK = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 65_536,
}


class Publisher:
    """An idempotent producer for `topic` with acks=all.

    `delivered`, `delivered_bytes` (of values): what the broker acknowledged. `failures`: refusals of the broker or the
    client, by reason. The constructor connects: it raises BrokerError if the broker does not answer, or the topic or a right
    is missing, and SettingsError if librdkafka does not accept the properties.
    """

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._topic = topic
        self._complaint = Complaint()
        self._producer = new_client(Producer, _properties(config), self._complaint)
        with without_recovery(), mapping_errors("opening a producer", self._complaint, self._producer):
            # All topics, since a request for one by name may create it.
            if topic not in self._producer.list_topics(timeout=config.request_timeout_s).topics:
                raise BrokerError(no_such_topic(topic))
        self.delivered = 0
        self.delivered_bytes = 0
        self.failures: Counter[str] = Counter()

    def send(self, key: bytes | None, value: bytes | None) -> None:
        """Hand a record to the client; blocks while its queue is full. A refusal is counted, not raised."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exception:
                self._fail(exception.args[0])
                return
            else:
                self._producer.poll(0)
                return

    def drain(self, timeout_s: float) -> int:
        """Wait for acknowledgements; returns how many records have none."""
        return self._producer.flush(timeout_s)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(error)
            return
        self.delivered += 1
        self.delivered_bytes += len(message.value() or b"")

    def _fail(self, error: KafkaError) -> None:
        self.failures[self._complaint.explain(error)] += 1


def _properties(config: KafkaConfig) -> dict[str, Any]:
    """The user's properties override the bulk ones, but not how records are acknowledged."""
    return {
        **_BULK,
        "message.timeout.ms": _LOST_AFTER_MS,
        "message.max.bytes": config.max_message_bytes,
        **config.client("producer"),
        "acks": "all",
        "enable.idempotence": True,
    }
