"""The newest records of the input topics: what a worker would make of them, and whether their keys can keep their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing

import orjson

from enricher.distribution import install_command
from enricher.errors import BrokerError, InvalidArticle, SchemaPending
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.doctor.keys import ADVICE, ONE_TOPIC, KeyPartitions
from enricher.operate.inspect.follow import TopicReader
from enricher.worker.articles.html_rule import looks_like_html
from enricher.worker.kafka.errors import UNREADABLE
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Article, RawRecord, Tombstone
from enricher.worker.runtime.deadlines import Deadline
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import article_reader, waiting_decoders
from enricher.worker.wiring.kafka_clients import kafka_config

_NEWEST = 200
"""Records per partition: enough that a wrong partitioner shows, few to fetch."""
_MAX_BYTES = 16 * 2**20
"""The most that are kept in memory of one topic's records."""
_POLL_S = 0.2
_REASONS = 3

_report = Reporter("broker")


def article_findings(settings: Settings) -> Iterator[Finding]:
    """All checks of the newest records, topic by topic. Raises SettingsError."""
    config, keys = kafka_config(settings), []
    for topic in config.inputs:
        try:
            partitions, records = newest_records(config, topic)
        except BrokerError as error:
            advice = "A worker reads these partitions too. Can it reach each broker by its advertised address?"
            yield _report.fail(f"the newest records of {topic}", str(error), advice)
            continue
        keys.append(KeyPartitions(partitions))
        yield from _keys(records, keys[-1])
        yield from _articles(settings, topic, records)
    if len(keys) > 1:
        yield _one_topic_per_key(keys)


def newest_records(config: KafkaConfig, topic: str) -> tuple[int, Sequence[RawRecord]]:
    """How many partitions the topic has, and the newest records of each. Raises BrokerError if one does not answer."""
    deadline, records, size_bytes = Deadline(config.request_timeout_s), list[RawRecord](), 0
    # An unreadable batch is an answer, too.
    with closing(TopicReader(config, topic, newest=_NEWEST, answers={UNREADABLE})) as reader:
        while not reader.fetched and size_bytes < _MAX_BYTES:
            found = reader.poll(_POLL_S)
            records += found
            size_bytes += sum(record.size_bytes for record in found)
            if deadline.over and not reader.fetched:
                raise BrokerError(f"'{topic}' did not answer a fetch within {config.request_timeout_s:.0f} s")
        return len(reader.ends), records


def _keys(records: Sequence[RawRecord], places: KeyPartitions) -> Iterator[Finding]:
    for record in records:
        places.note(record.key, record.partition.number)
    if without := sum(record.key is None for record in records):
        seen = f"{without} of the newest {len(records)} records have no key"
        yield _report.warn("keys of articles", seen, "Without a key there is no order per article, and no compaction.")
    if places.in_several or places.from_crc32:
        yield _report.warn("one partition per key", f"{places}, among the newest records", ADVICE)
    else:
        yield _report.ok("one partition per key", f"holds for the {places.keys:,} keys of the newest records")


def _one_topic_per_key(places: Sequence[KeyPartitions]) -> Finding:
    check, topics = "one input topic per key", Counter(digest for each in places for digest in each.digests)
    if several := sum(count > 1 for count in topics.values()):
        seen = f"{several:,} of {len(topics):,} keys have records in several input topics, among the newest records"
        return _report.warn(check, seen, ONE_TOPIC)
    return _report.ok(check, f"holds for the {len(topics):,} keys of the newest records")


def _articles(settings: Settings, topic: str, records: Sequence[RawRecord]) -> Iterator[Finding]:
    refused: Counter[str] = Counter()
    articles = list(_read(settings, records, refused))
    total = len(articles) + refused.total()
    seen = f"{len(articles)} of the newest {total} records of '{topic}' can be read"
    if refused:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in refused.most_common(_REASONS))
        advice = "They become dead letters. Do articles.format and articles.fields say how articles are written?"
        yield _report.warn("the newest articles", f"{seen}; {reasons}", advice)
    else:
        yield _report.ok("the newest articles", seen if total else f"'{topic}' has no records yet")
    if articles:
        yield from _contents(settings, articles)


def _read(settings: Settings, records: Sequence[RawRecord], refused: Counter[str]) -> Iterator[Article]:
    """The articles, without tombstones and delete events. Counts all others in `refused`."""
    with waiting_decoders(settings) as decoders:
        reader = article_reader(settings, decoders)
        for record in records:
            if record.value is None:
                continue
            try:
                if not isinstance(found := reader.read(record), Tombstone):
                    yield found
            except InvalidArticle as error:
                refused[str(error)] += 1
            except SchemaPending as pending:
                refused[f"schema {pending.reference} is not there: such articles wait"] += 1


def _contents(settings: Settings, articles: Sequence[Article]) -> Iterator[Finding]:
    """Mistakes in articles that can be read, about which no dead letter tells."""
    if dropped := Counter(name for article in articles for name in article.dropped):
        seen = f"wrong in some of {len(articles)} articles: {', '.join(f'{n} x {name}' for name, n in dropped.items())}"
        advice = (
            "They have another type, or are too long: articles are enriched without them (articles.wrong_optional)."
        )
        yield _report.warn("optional fields", seen, advice)
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
