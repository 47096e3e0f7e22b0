"""Settings -> the reader of articles. Its own module, so that most commands import nothing of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.worker.articles import ArticleReader, DeleteEvents, FieldMapping
from enricher.worker.articles.formats import PLAIN_FORMATS, read_document
from enricher.worker.articles.html_rule import looks_like_html
from enricher.worker.articles.mapping import is_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.articles.formats import ReadDocument
    from enricher.worker.articles.reader import ReadMarkup
    from enricher.worker.articles.schemas import Decoders
    from enricher.worker.records import SourceMap
    from enricher.worker.settings import Settings


def article_reader(settings: Settings, decoders: Decoders | None = None) -> ArticleReader:
    """The reader of input records. `decoders`: for values that name a schema (`articles.format=registry`)."""
    form = settings.articles.format
    read_plain = PLAIN_FORMATS["json" if form == "registry" else form]
    mapping = field_mapping(settings)
    return _reader(
        settings,
        mapping,
        decoders,
        deletes=delete_events(settings, mapping),
        read_plain=read_plain,
        read_markup=markup_reader(settings),
    )


def line_reader(settings: Settings, *, mapped: bool = True) -> ArticleReader:
    """The reader of articles that are lines of a file. `mapped=False`: for our own articles, whose fields are at the top."""
    if not mapped:
        return _reader(settings, FieldMapping(), deletes=None)
    mapping = line_mapping(settings)
    deletes = delete_events(settings, mapping)
    return _reader(settings, mapping, deletes=deletes, read_markup=markup_reader(settings))


def markup_reader(settings: Settings) -> ReadMarkup | None:
    """The function that reads bodies with markup; None if all bodies are text. Raises SettingsError without the extra."""
    body_format = settings.articles.body_format
    if body_format == "text":
        return None
    try:
        from enricher.worker.articles.html_text import read_html  # noqa: PLC0415  of an extra
    except ImportError as error:
        message = f"articles.body_format={body_format} needs more packages ({error}): {install_command('html')}"
        raise SettingsError(message) from error
    if body_format == "html":
        return read_html

    def read_if_html(blocks: Sequence[str], separator: str) -> tuple[str, SourceMap] | None:
        return read_html(blocks, separator) if any(map(looks_like_html, blocks)) else None

    return read_if_html


def field_mapping(settings: Settings) -> FieldMapping:
    """The mapping that finds the fields of articles."""
    return _mapping(settings, settings.articles.fields)


def line_mapping(settings: Settings) -> FieldMapping:
    """The mapping for lines of a file. Lines have neither key nor headers, so the id is in the document."""
    fields = {name: where for name, where in settings.articles.fields.items() if not is_beside(where)}
    return _mapping(settings, fields)


def delete_events(settings: Settings, mapping: FieldMapping) -> DeleteEvents | None:
    """Which documents are delete events, if the settings say so. `mapping`: that of articles, which may find their ids."""
    deleted, articles = settings.articles.deleted, settings.articles
    if deleted is None:
        return None
    ids = mapping if deleted.id is None else FieldMapping({"id": deleted.id}, scalar_ids=articles.scalar_ids)
    return DeleteEvents(deleted.field, deleted.values, ids)


def _mapping(settings: Settings, fields: dict[str, str]) -> FieldMapping:
    articles = settings.articles
    return FieldMapping(
        fields,
        metadata=articles.metadata,
        paragraph_separator=articles.paragraph_separator,
        scalar_ids=articles.scalar_ids,
        drop_wrong=articles.wrong_optional == "drop",
    )


def _reader(
    settings: Settings,
    mapping: FieldMapping,
    decoders: Decoders | None = None,
    *,
    deletes: DeleteEvents | None,
    read_plain: ReadDocument = read_document,
    read_markup: ReadMarkup | None = None,
) -> ArticleReader:
    articles = settings.articles
    return ArticleReader(
        max_article_chars=articles.max_article_chars,
        max_value_bytes=articles.max_value_bytes,
        mapping=mapping,
        decoders=decoders,
        read_plain=read_plain,
        deletes=deletes,
        read_markup=read_markup,
        keep_document=settings.output.article == "whole",
    )
