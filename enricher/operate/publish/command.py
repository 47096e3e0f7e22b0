"""The command `publish`: options, sending at a rate, progress. `lines` reads, `enricher.operate.publish.publisher` sends."""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from enricher.errors import BrokerError, FatalError, InvalidArticle, SettingsError
from enricher.operate.publish.lines import key_of, lines_in, place_of, require_files
from enricher.operate.publish.publisher import Publisher
from enricher.operate.publish.token_bucket import MAX_RATE, TokenBucket
from enricher.worker.articles import DeleteEvents, FieldMapping
from enricher.worker.articles.mapping import HEADER
from enricher.worker.commands.console import Ticker, remark_console
from enricher.worker.commands.topic_options import InputOption, with_one_input
from enricher.worker.files import Line
from enricher.worker.kafka.properties import transactional_id
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.formats import delete_events, line_mapping
from enricher.worker.wiring.kafka_clients import kafka_config

Record = tuple[bytes | None, bytes | None]
"""Key and value."""

_LINES_PER_TRANSACTION = 1_000
_DRAIN_STEP_S = 0.5


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
    limit: Annotated[int | None, typer.Option(min=1, help="Publish at most this many articles.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.01, max=MAX_RATE, help="At most this many articles per second, also right after an outage."),
    ] = None,
    transactional: Annotated[
        bool, typer.Option("--transactional", help="Publish in transactions of 1,000 articles.")
    ] = False,
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
    own_id = transactional_id(config.group_id, config.instance, "publish", str(os.getpid())) if transactional else None
    publisher = Publisher(config, config.input_topic, transactional_id=own_id)
    what = "tombstones" if tombstones else "articles"
    sending = _Sending(publisher, what, rate_per_s=rate, transactional=transactional)
    try:
        with Ticker(remark_console()) as ticker:
            sending.send(islice(records if tombstones else sending.with_keys(lines, mapping, deletes), limit), ticker)
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
    """Refuse what would make a dead letter of every article. Raises SettingsError."""
    if (where := settings.articles.fields.get("id", "")).startswith(HEADER):
        message = f"articles.fields takes the id from {where}, and publish writes no headers: leave out id, or say key"
        raise SettingsError(message)


class _Sending:
    """One run: sends at the requested rate, commits if transactional, counts."""

    def __init__(self, publisher: Publisher, what: str, *, rate_per_s: float | None, transactional: bool) -> None:
        self._publisher = publisher
        self._what = what
        self._bucket = None if rate_per_s is None else TokenBucket(rate_per_s)
        self._transactional = transactional
        self._began_s = time.monotonic()
        self.sent = 0
        self.refused = 0
        """Lines that were left out, because they have no id that a worker accepts."""
        self.first_refused = ""
        """The first of them: its place, and why it was left out."""
        self._committed = 0

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
            self._wait_for_turn(ticker)
            self._publisher.send(key, value)
            self.sent += 1
            if self._transactional and self.sent % _LINES_PER_TRANSACTION == 0:
                self._commit()
            ticker.tick(self.summary)
        while self._publisher.drain(_DRAIN_STEP_S):
            ticker.tick(self.summary)
        if self._transactional:
            self._commit()

    def summary(self) -> str:
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        done, megabytes = self._publisher.delivered, self._publisher.delivered_bytes / 1e6
        failed = self._publisher.failures.total()
        text = f"{done:,} {self._what}, {megabytes:,.1f} MB, {done / elapsed_s:,.0f}/s, {elapsed_s:.1f} s"
        if self._transactional and done > self._committed:
            text += f", {done - self._committed:,} of them not committed"
        text += f", {self.refused:,} refused" if self.refused else ""
        return f"{text}, {failed:,} failed" if failed else text

    def _commit(self) -> None:
        self._publisher.commit()
        self._committed = self._publisher.delivered

    def _wait_for_turn(self, ticker: Ticker) -> None:
        bucket = self._bucket
        if bucket is None:
            return
        while (wait_s := self._held_up_s(bucket)) > 0:
            self._publisher.wait(min(wait_s, _DRAIN_STEP_S))
            ticker.tick(self.summary)
        bucket.take()

    def _held_up_s(self, bucket: TokenBucket) -> float:
        """Seconds until the next article may go. Articles that the client queues for an absent broker count as sent."""
        unanswered = self.sent - self._publisher.delivered - self._publisher.failures.total()
        return _DRAIN_STEP_S if unanswered >= bucket.most_unanswered else bucket.wait_s()
