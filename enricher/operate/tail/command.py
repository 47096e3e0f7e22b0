"""The command `tail`: follows the output or dead-letter topic, fetches the articles, prints. `show` draws."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from math import inf
from typing import Annotated

import orjson
import typer
from rich.console import Console

from enricher.errors import InvalidArticle, SchemaPending
from enricher.operate.inspect.follow import RecordFinder, TopicReader
from enricher.operate.tail import show
from enricher.worker.articles import ArticleReader
from enricher.worker.build.article_readers import article_reader
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.build.schema_registry import waiting_decoders
from enricher.worker.commands.console import data_console, remark_console, write_line
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.records import Article, Partition, RawRecord, Tombstone
from enricher.worker.settings import load_settings

_POLL_S = 0.2
_SILENT_S = 2.0
"""After this, a person at a terminal wonders whether it works."""


def tail(
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest record instead of the next one.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End where the topic ended when the command started.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a JSON object on one line.")] = False,
    dead_letters: Annotated[bool, typer.Option("--dead-letters", help="Show dead letters with their reasons.")] = False,
) -> None:
    """Show enriched records as they appear, with the entities in their sentences. Ctrl-C ends it.

    It joins no group and commits nothing. The texts come from the input topic, as long as it keeps them.
    """
    settings = load_settings()
    config = kafka_config(settings)
    topic = config.dead_letter_topic if dead_letters else config.output_topic
    with (
        suppress(KeyboardInterrupt),
        nullcontext() if as_json else waiting_decoders(settings) as decoders,
        closing(TopicReader(config, topic, newest=None if from_beginning else 0)) as reader,
        closing(_Viewer(config, reader, article_reader(settings, decoders, limits=False))) as viewer,
    ):
        draw = viewer.draw_dead_letter if dead_letters else viewer.draw
        if not (as_json or until_end):
            remark_console().print(f"following {topic}; Ctrl-C ends")
        for count, record in enumerate(follow(reader, partial(_explain_silence, topic), until_end=until_end), start=1):
            if as_json:
                write_line(show.as_line(record))
            else:
                draw(record)
            if count == limit:
                break


def follow(
    reader: TopicReader,
    explain_silence: Callable[[], None],
    *,
    until_end: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[RawRecord]:
    """The records of a topic. If none has come 2 s after the start, `explain_silence` is called, once."""
    silent_s = clock() + _SILENT_S
    while not (until_end and reader.finished):
        for record in reader.poll(_POLL_S):
            silent_s = inf
            if not until_end or record.offset < reader.ends[record.partition.number]:
                yield record
        if clock() >= silent_s:
            silent_s = inf
            explain_silence()


def _explain_silence(topic: str) -> None:
    old = "to see those that are there already: enricher tail --from-beginning --until-end"
    remark_console().print(f"waiting for new records in {topic}; {old}")


class _Viewer:
    """Draws records and fetches their articles."""

    def __init__(
        self,
        config: KafkaConfig,
        reader: TopicReader,
        articles: ArticleReader,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._articles = articles
        self._finder = RecordFinder(config)
        self._ends_at_start = reader.ends
        self._clock = clock
        self._console: Console = data_console()
        self._colours = self._console.is_terminal and not self._console.no_color

    def draw(self, record: RawRecord) -> None:
        if record.value is None:
            key = "" if record.key is None else record.key.decode("utf-8", "backslashreplace")
            self._console.print(f"deleted: {key}", markup=False, style="dim")
            return
        source = self._source(record)
        facts = self._facts(record, source)
        try:
            document = orjson.loads(show.json_of(record))
            lines = list(show.enriched_lines(document, self._article(source), facts, colours=self._colours))
        except (ValueError, LookupError, TypeError, AttributeError):  # not written by a worker
            lines = [show.foreign(record)]
        for line in lines:
            self._console.print(line, soft_wrap=True)
        self._console.print()

    def draw_dead_letter(self, record: RawRecord) -> None:
        for line in show.dead_letter(record):
            self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        self._finder.close()

    def _source(self, record: RawRecord) -> RawRecord | None:
        headers = show.header_texts(record)
        try:
            partition = Partition(
                headers["enricher.source.topic"] or "", int(headers["enricher.source.partition"] or "")
            )
            offset, topic_id = int(headers["enricher.source.offset"] or ""), headers.get("enricher.source.topic.id")
            return self._finder.find(partition, offset, topic_id)
        except (KeyError, ValueError):  # not written by a worker
            return None

    def _facts(self, record: RawRecord, source: RawRecord | None) -> str:
        """Time from the article's publication until the record appeared here, or was written if that is past."""
        if source is None:
            return "its article is gone from the input topic"
        if source.timestamp_s is None or record.timestamp_s is None:
            return "the broker keeps no timestamps"
        live = record.offset >= self._ends_at_start[record.partition.number]
        appeared_s = self._clock() if live else record.timestamp_s
        how = "appeared" if live else "written"
        return f"{how} {appeared_s - source.timestamp_s:.3f} s after its publication"

    def _article(self, source: RawRecord | None) -> Article | None:
        """The article in a record of the input topic; None if there is none, or if its schema is not here."""
        if source is None or source.value is None:
            return None
        try:
            found = self._articles.read(source)
            return None if isinstance(found, Tombstone) else found
        except (InvalidArticle, SchemaPending):
            return None
