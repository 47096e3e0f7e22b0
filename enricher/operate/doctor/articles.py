"""Reads the newest articles as a worker would: how many become dead letters and why, and which mapped fields are in none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

from enricher.errors import BrokerError, InvalidArticle, SchemaPending
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.trials.rights import newest_records
from enricher.worker.build.article_readers import article_reader
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.build.schema_registry import waiting_decoders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enricher.worker.records import Article
    from enricher.worker.settings import Settings

_NEWEST = 20
"""Records per partition."""
_REASONS = 3
_REQUIRED = {"id", "body"}

_report = Reporter("broker")


def article_findings(settings: Settings) -> Iterator[Finding]:
    """Whether the newest records are articles, by these settings. Raises SettingsError."""
    check = "the newest articles"
    refused: Counter[str] = Counter()
    try:
        articles = list(_articles(settings, refused))
    except BrokerError as error:
        yield _report.warn(check, f"not read: {error}", "See the checks above.")
        return
    total = len(articles) + refused.total()
    seen = f"{len(articles)} of the newest {total} records of '{settings.kafka.input_topic}' can be read"
    if refused:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in refused.most_common(_REASONS))
        advice = "They become dead letters. Do articles.format and articles.fields say how articles are written?"
        yield _report.warn(check, f"{seen}; {reasons}", advice)
    else:
        yield _report.ok(check, seen if total else f"'{settings.kafka.input_topic}' has no records yet")
    if dropped := Counter(name for article in articles for name in article.dropped):
        seen = f"wrong in some of {len(articles)} articles: {', '.join(f'{n} x {name}' for name, n in dropped.items())}"
        advice = (
            "They are of another type or too long; the articles are enriched without them (articles.wrong_optional)."
        )
        yield _report.warn("optional fields", seen, advice)
    if articles:
        yield from _absent(settings.articles.fields, settings.articles.metadata, articles)


def _articles(settings: Settings, refused: Counter[str]) -> Iterator[Article]:
    """The newest articles. Counts the records that are none in `refused`; tombstones are left out."""
    config = kafka_config(settings)
    # All at once: while a schema is waited for, the broker's time to answer would run out.
    records = list(newest_records(config, config.input_topic, _NEWEST))
    with waiting_decoders(settings) as decoders:
        reader = article_reader(settings, decoders)
        for record in records:
            if record.value is None:
                continue
            try:
                yield reader.read(record)
            except InvalidArticle as error:
                refused[str(error)] += 1
            except SchemaPending as pending:
                refused[f"schema {pending.reference} is not there: such articles wait"] += 1


def _absent(fields: Mapping[str, str], metadata: Mapping[str, str], articles: Sequence[Article]) -> Iterator[Finding]:
    """Mapped fields that no article has: they are optional, so a wrong pointer makes no dead letter."""
    found = {"title"} if any(article.title for article in articles) else set()
    found |= {name for article in articles for name in article.metadata}
    further = {name for article in articles for name in orjson.loads(article.further or b"{}")}
    absent = [f"articles.fields: {name} at {at}" for name, at in fields.items() if name not in _REQUIRED | found]
    absent += [f"articles.metadata: {name} at {at}" for name, at in metadata.items() if name not in further]
    if absent:
        seen = f"in none of {len(articles)} articles: {', '.join(absent)}"
        yield _report.warn("mapped fields", seen, "Are these pointers right? Records are written without them.")
