"""Reads the newest articles as a worker would: how many become dead letters and why, and which mapped fields are in none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

from enricher.distribution import install_command
from enricher.errors import BrokerError, InvalidArticle, SchemaPending
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.trials.rights import newest_records
from enricher.worker.articles.html_rule import looks_like_html
from enricher.worker.build.article_readers import article_reader
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.build.schema_registry import waiting_decoders
from enricher.worker.records import Tombstone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enricher.worker.records import Article
    from enricher.worker.settings import Settings
    from enricher.worker.settings.index import IndexSettings

_NEWEST = 20
"""Records per partition."""
_REASONS = 3

_report = Reporter("broker")


def article_findings(settings: Settings) -> Iterator[Finding]:
    """Whether the newest records are articles, by these settings. Raises SettingsError."""
    check = "the newest articles"
    refused: Counter[str] = Counter()
    try:
        keyed = list(_articles(settings, refused))
    except BrokerError as error:
        yield _report.warn(check, f"not read: {error}", "See the checks above.")
        return
    articles = [article for _, article in keyed]
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
    yield from _document_keys(settings.index, keyed)
    html = sum(looks_like_html(article.body) for article in articles) if settings.articles.body_format == "text" else 0
    if html:
        seen = f"{html} of {len(articles)} articles look like HTML, but articles.body_format is text"
        advice = f"Set articles.body_format to html, or to auto if only some are: {install_command('html')}"
        yield _report.warn("bodies", seen, advice)
    if articles:
        yield from _absent(settings.articles.fields, settings.articles.metadata, articles)


def _articles(settings: Settings, refused: Counter[str]) -> Iterator[tuple[bytes | None, Article]]:
    """The newest articles, each with its record's key; tombstones and delete events are left out.

    Counts the records that are no articles in `refused`.
    """
    config = kafka_config(settings)
    # All at once: while a schema is waited for, the broker's time to answer would run out.
    records = list(newest_records(config, config.input_topic, _NEWEST))
    with waiting_decoders(settings) as decoders:
        reader = article_reader(settings, decoders)
        for record in records:
            if record.value is None:
                continue
            try:
                if not isinstance(found := reader.read(record), Tombstone):
                    yield record.key, found
            except InvalidArticle as error:
                refused[str(error)] += 1
            except SchemaPending as pending:
                refused[f"schema {pending.reference} is not there: such articles wait"] += 1


def _document_keys(index: IndexSettings, keyed: Sequence[tuple[bytes | None, Article]]) -> Iterator[Finding]:
    """Whether the indexer takes the keys: by them tombstones delete. Nothing without a search index in the settings."""
    if not index.url and index.document_id == "key":
        return
    check = "keys of the search index"
    if index.document_id == "id":
        what, advice = "not their ids", "Set index.document_id=key, or publish articles with their id as key."
        wrong = [key for key, article in keyed if key and key != article.id.encode()]
    else:
        what, advice = "no text in UTF-8", "Publish articles with their id as key."
        wrong = [key for key, _ in keyed if key and key.decode(errors="replace").encode() != key]
    if wrong:
        seen = (
            f"with index.document_id={index.document_id}, the keys of {len(wrong)} of {len(keyed)} articles are {what}"
        )
        advice = f"Their records become dead letters of the indexer, because no tombstone could delete them. {advice}"
        yield Reporter("settings").fail(check, seen, advice)
    else:
        yield _report.ok(check, f"those of {len(keyed)} articles can identify documents")


def _absent(fields: Mapping[str, str], metadata: Mapping[str, str], articles: Sequence[Article]) -> Iterator[Finding]:
    """Mapped fields that no article has: they are optional, so a wrong pointer makes no dead letter.

    Nor does that of a body with a `*`, where articles have a title.
    """
    found = (
        {"id"} | {"title" for article in articles if article.title} | {"body" for article in articles if article.body}
    )
    found |= {name for article in articles for name in article.metadata}
    further = {name for article in articles for name in orjson.loads(article.further or b"{}")}
    absent = [f"articles.fields: {name} at {at}" for name, at in fields.items() if name not in found]
    absent += [f"articles.metadata: {name} at {at}" for name, at in metadata.items() if name not in further]
    if absent:
        seen = f"in none of {len(articles)} articles: {', '.join(absent)}"
        yield _report.warn("mapped fields", seen, "Are these pointers right? Records are written without them.")
