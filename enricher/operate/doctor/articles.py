"""Checks the newest records of the input topics: whether a worker reads them, and whether keys keep their order."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, redirect_stdout
from hashlib import blake2b

import orjson

from enricher.distribution import install_command
from enricher.errors import BrokerError, InvalidArticle, SchemaPending
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.inspector import TopicReader
from enricher.worker.articles.html_rule import looks_like_html
from enricher.worker.kafka.errors import UNREADABLE
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Article, RawRecord, Skipped
from enricher.worker.runtime.deadlines import Deadline
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import article_reader, waiting_decoders
from enricher.worker.wiring.kafka_clients import kafka_config

_NEWEST = 200
"""Records per partition: enough that a wrong partitioner shows, few to fetch."""
_MAX_BYTES = 16 * 2**20
"""The most bytes of one topic's records that are kept in memory."""
_POLL_S = 0.2
_REASONS = 3

_report = Reporter("broker")


ADVICE = (
    "Give every producer of librdkafka (confluent-kafka) the property partitioner=murmur2_random; if the topic got more "
    "partitions, raise kafka.epoch (deploy/index-consumers.md)."
)
ONE_TOPIC = (
    "Between topics no order is kept, nor by versions: an old article or tombstone may come last. Publish all records of a "
    "key to one of them (deploy/running.md)."
)


def article_findings(settings: Settings, guard: Guard) -> Iterator[Finding]:
    """All checks of the newest records, topic by topic. `guard` bounds reading one. Raises SettingsError."""
    config, keys = kafka_config(settings), []
    for topic in config.inputs:
        try:
            records = newest_records(config, topic)
        except BrokerError as error:
            advice = "A worker reads these partitions too. Can it reach each broker by its advertised address?"
            yield _report.fail(f"the newest records of {topic}", str(error), advice)
            continue
        keys.append(KeyPartitions())
        yield from _keys(records, keys[-1])
        yield from _articles(settings, topic, records, guard)
    if len(keys) > 1:
        yield _one_topic_per_key(keys)


def newest_records(config: KafkaConfig, topic: str) -> Sequence[RawRecord]:
    """The newest records of each partition. Raises BrokerError if one does not answer."""
    deadline, records, size_bytes = Deadline(config.request_timeout_s), list[RawRecord](), 0
    # An unreadable batch is an answer, too.
    with closing(TopicReader(config, topic, newest=_NEWEST, answers={UNREADABLE})) as reader:
        while not reader.fetched and size_bytes < _MAX_BYTES:
            found = reader.poll(_POLL_S)
            records += found
            size_bytes += sum(record.size_bytes for record in found)
            if deadline.over and not reader.fetched:
                raise BrokerError(f"'{topic}' did not answer a fetch within {config.request_timeout_s:.0f} s")
        return records


def _keys(records: Sequence[RawRecord], places: KeyPartitions) -> Iterator[Finding]:
    for record in records:
        places.note(record.key, record.partition.number)
    if without := sum(record.key is None for record in records):
        seen = f"{without} of the newest {len(records)} records have no key"
        yield _report.warn("keys of articles", seen, "Without a key there is no order per article, and no compaction.")
    check, keys = "one partition per key", len(places.digests)
    if places.in_several:
        seen = f"{places.in_several:,} of {keys:,} keys have records in several partitions, among the newest records"
        yield _report.warn(check, seen, ADVICE)
    else:
        yield _report.ok(check, f"holds for the {keys:,} keys of the newest records")


def _one_topic_per_key(places: Sequence[KeyPartitions]) -> Finding:
    check, topics = "one input topic per key", Counter(digest for each in places for digest in each.digests)
    if several := sum(count > 1 for count in topics.values()):
        seen = f"{several:,} of {len(topics):,} keys have records in several input topics, among the newest records"
        return _report.warn(check, seen, ONE_TOPIC)
    return _report.ok(check, f"holds for the {len(topics):,} keys of the newest records")


def _articles(settings: Settings, topic: str, records: Sequence[RawRecord], guard: Guard) -> Iterator[Finding]:
    refused: Counter[str] = Counter()
    skipped: list[RawRecord] = []
    with redirect_stdout(sys.stderr):  # a transform may print
        articles = list(_read(settings, records, refused, skipped, guard))
    total = len(articles) + len(skipped) + refused.total()
    seen = f"{len(articles)} of the newest {total} records of '{topic}' can be read"
    if skipped:
        seen += f", articles.transform skips {len(skipped)}"
    if refused:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in refused.most_common(_REASONS))
        advice = "They become dead letters. Do articles.format and articles.fields say how articles are written?"
        yield _report.warn("the newest articles", f"{seen}; {reasons}", advice)
    else:
        yield _report.ok("the newest articles", seen if total else f"'{topic}' has no records yet")
    if articles:
        yield from _contents(settings, articles)


def _read(
    settings: Settings, records: Sequence[RawRecord], refused: Counter[str], skipped: list[RawRecord], guard: Guard
) -> Iterator[Article]:
    """The articles, without tombstones and delete events.

    Counts in `refused` what becomes a dead letter, and lists in `skipped` what has no output.
    """
    limit_s = settings.worker.stall_timeout_s
    with waiting_decoders(settings) as decoders:
        reader = article_reader(settings, decoders)
        for record in records:
            if record.value is None:
                continue
            try:
                with guard("reading an article", limit_s):
                    read = reader.read(record)
                match read:
                    case Article() as article:
                        yield article
                    case Skipped():
                        skipped.append(record)
            except InvalidArticle as error:
                refused[str(error)] += 1
            except SchemaPending as pending:
                refused[f"schema {pending.reference} is not there: such articles wait"] += 1


def _contents(settings: Settings, articles: Sequence[Article]) -> Iterator[Finding]:
    """Mistakes in articles that can be read, about which no dead letter tells."""
    html = sum(looks_like_html(article.body) for article in articles) if settings.articles.body_format == "text" else 0
    if html:
        seen = f"{html} of {len(articles)} articles look like HTML, but articles.body_format is text"
        advice = f"Set articles.body_format to html, or to auto if only some are: {install_command('html')}"
        yield _report.warn("bodies", seen, advice)
    if absent := list(_absent(settings, articles)):
        # They are optional, so a wrong pointer makes no dead letter; nor does that of a body with a `*` beside a title.
        seen = f"in none of {len(articles)} articles: {', '.join(absent)}"
        yield _report.warn("mapped fields", seen, "Are these pointers right? Records are written without them.")


def _absent(settings: Settings, articles: Sequence[Article]) -> Iterator[str]:
    """The mapped fields that no article has."""
    found = {name for article in articles for name in ("id", "title", "body") if getattr(article, name)}
    found |= {name for article in articles for name in article.metadata}
    further = {name for article in articles for name in orjson.loads(article.further or b"{}")}
    for group, names in (("fields", found), ("metadata", further)):
        for name, at in getattr(settings.articles, group).items():
            if name not in names:
                yield f"articles.{group}: {name} at {at}"


class KeyPartitions:
    """Counts keys by where their records are."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        """The partition of the first record of each key, by the key's digest."""
        self._several: set[int] = set()

    def note(self, key: bytes | None, partition: int) -> None:
        """Take the next record; a record without a key may be in any partition."""
        if key is None:
            return
        digest = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
        if self._place.setdefault(digest, partition) != partition:
            self._several.add(digest)

    @property
    def digests(self) -> Collection[int]:
        """The digests of the keys, which are the same in other topics."""
        return self._place.keys()

    @property
    def in_several(self) -> int:
        """The number of keys with records in several partitions."""
        return len(self._several)
