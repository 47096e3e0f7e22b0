"""Reads the article in an input record: first its envelope (CloudEvent, frame and schema), then its fields.

Whatever a record contains, it becomes an article or an InvalidArticle: one record must not end the worker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from enricher.errors import EnricherError, InvalidArticle
from enricher.worker.articles.cloudevents import unwrap
from enricher.worker.articles.enriched import limit_levels
from enricher.worker.articles.framing import read_frame
from enricher.worker.articles.json_articles import (
    BYTE_ORDER_MARK,
    NOT_AN_OBJECT,
    check_article,
    json_part,
    read_document,
    too_large,
)
from enricher.worker.articles.mapping import NO_DEFAULTS, FieldMapping
from enricher.worker.articles.pointers import is_unicode
from enricher.worker.records import Tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from enricher.worker.articles.deletes import DeleteEvents
    from enricher.worker.articles.framing import Frame
    from enricher.worker.articles.json_articles import ReadDocument
    from enricher.worker.articles.schemas import Decoders
    from enricher.worker.records import Article, Headers, RawRecord, SourceMap

    ReadMarkup = Callable[[Sequence[str], str], tuple[str, SourceMap] | None]
    """Reads the text in the blocks of a body, and its map to them as they are joined with a separator.

    Returns None if they are text already.
    """


class ArticleReader:
    """Turns input records into articles.

    `decoders` read values that name a schema; `read_plain` reads all other values. `deletes`: which documents are delete
    events. `read_markup`: reads the text in bodies with markup; then their sources may have `max_value_bytes` characters.
    `keep_document`: keep the whole document, as JSON, in the article. Safe in several threads if `decoders` is.
    """

    def __init__(
        self,
        *,
        max_article_chars: int,
        max_value_bytes: int,
        mapping: FieldMapping | None = None,
        decoders: Decoders | None = None,
        read_plain: ReadDocument = read_document,
        deletes: DeleteEvents | None = None,
        read_markup: ReadMarkup | None = None,
        keep_document: bool = False,
    ) -> None:
        self._max_article_chars = max_article_chars
        self._max_source_chars = max_article_chars if read_markup is None else max_value_bytes
        self._max_value_bytes = max_value_bytes
        self._mapping = mapping or FieldMapping()
        self._decoders = decoders
        self._read_plain = read_plain
        self._deletes = deletes
        self._read_markup = read_markup
        self._keep_document = keep_document
        self._decodes = read_plain is not read_document

    def read(self, raw: RawRecord) -> Article | Tombstone:
        """The article of a record that has a value, or the tombstone of a delete event.

        Raises InvalidArticle, or SchemaPending from `decoders`.
        """
        value, frame, lent = raw.value, None, NO_DEFAULTS
        assert value is not None, "a record without a value is a tombstone"
        if raw.headers or self._decoders is not None:
            document, frame, lent = self._unwrap(value, raw.headers)
        else:  # the usual case, without calls that would do nothing: they took a tenth of the time
            document = self._read_plain(value, self._max_value_bytes)
        if self._deletes is not None and (tombstone := self._deletes.tombstone(document, raw, lent)):
            return tombstone
        article = self._mapping.article(document, raw, self._max_source_chars, lent)
        if article.further is not None and len(article.further) > self._max_value_bytes:
            size = f"{len(article.further)} bytes as JSON, at most {self._max_value_bytes} are allowed"
            raise InvalidArticle(f"what articles.metadata names has {size}")
        if self._read_markup is not None:
            article = self._without_markup(article, document, self._read_markup)
        if frame is not None or lent or self._decodes:
            article = _check_texts(article, may_be_empty=bool(lent))
        if not self._keep_document:
            return article
        text = self._own_json(value, frame, document)
        return replace(article, document=self._as_json(document) if text is None else limit_levels(text))

    def _unwrap(self, value: bytes, headers: Headers) -> tuple[dict[str, Any], Frame | None, Mapping[str, str | None]]:
        """The document in a value, the frame if that is the whole value, and the fields that an event lends."""
        if len(value) > self._max_value_bytes:  # before an event in JSON or a frame is looked at
            raise too_large(value, self._max_value_bytes)
        event = unwrap(value, headers) if headers else None
        if event is None:
            return *self._open(value, headers), NO_DEFAULTS
        lent = {"id": event.id, "source": event.source, "published_at": event.time}
        if event.document is not None:
            return _object(event.document), None, lent
        if event.data is None:
            raise InvalidArticle("the CloudEvent has no data")
        whole = event.data == value
        # Headers about the value, such as that of its schema, say nothing about data within the value.
        document, frame = self._open(event.data, headers if whole else ())
        return document, frame if whole else None, lent

    def _without_markup(self, article: Article, document: dict[str, Any], read_markup: ReadMarkup) -> Article:
        """The article with the text of its body, to which the limit of characters applies."""
        blocks = None if article.body_separator is None else self._mapping.blocks(document)
        found = read_markup([article.body] if blocks is None else blocks, article.body_separator or "")
        if found is not None:
            article = replace(article, body=found[0], source_map=found[1])
        check_article(article, self._max_article_chars)
        return article

    def _open(self, value: bytes, headers: Headers) -> tuple[dict[str, Any], Frame | None]:
        """The document in a value, and its frame; None if it names no schema, or there are no decoders."""
        frame = None
        if self._decoders is not None:
            frame = read_frame(value, headers, max_payload_bytes=self._max_value_bytes)
        if self._decoders is None or frame is None:
            return self._read_plain(value, self._max_value_bytes), None
        return _decode(frame, self._decoders), frame

    def _own_json(self, value: bytes, frame: Frame | None, document: dict[str, Any]) -> bytes | None:
        """The value, or the payload of its frame, if that is the JSON of the document; None if it is not."""
        if frame is None and not self._decodes:
            return json_part(value)
        text = (value if frame is None else frame.payload).removeprefix(BYTE_ORDER_MARK)
        if not text.lstrip().startswith(b"{"):
            return None
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        return text if found.keys() == document.keys() else None

    def _as_json(self, document: dict[str, Any]) -> bytes:
        """A document that was not JSON, as JSON."""
        try:
            text = orjson.dumps(document)
        except TypeError:  # not chained: its message may contain the document
            reason = "the document cannot be written as JSON, or is nested too deeply"
        else:
            if len(text) <= self._max_value_bytes:
                return limit_levels(text)
            reason = f"the document has {len(text)} bytes as JSON, at most {self._max_value_bytes} are allowed"
        raise InvalidArticle(reason)


def _decode(frame: Frame, decoders: Decoders) -> dict[str, Any]:
    """Decode the payload by the frame's schema.

    A decoder should raise InvalidArticle only. A record on which it fails in another way is refused, because it would end
    one process after the other. Errors that no record causes pass through: a lack of memory, and those of the look-up of
    the decoder.
    """
    decoder = decoders.decoder(frame.reference)
    try:
        document = decoder(frame.payload)
        return document if type(document) is dict else _object(document)
    except (EnricherError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  whatever a library raises
        reason = f"the decoder of schema {frame.reference} failed with {type(error).__name__}"
    raise InvalidArticle(reason)  # not chained: the library's message may contain the document


def _object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidArticle(NOT_AN_OBJECT)
    return document


def _check_texts(article: Article, *, may_be_empty: bool) -> Article:
    """Refuse lone surrogates, which a decoder may let through, and leave out empty metadata unless they may be.

    In Protobuf a text that is not set is empty. Raises InvalidArticle.
    """
    # Python knows of each text whether it is ASCII, so this takes no time.
    body = "" if article.body.isascii() else article.body
    if not is_unicode("".join((article.id, article.title, body, *article.metadata.values()))):
        texts = {"id": article.id, "title": article.title, "body": article.body, **article.metadata}
        name = next(name for name, text in texts.items() if not is_unicode(text))
        raise InvalidArticle(f"{name} has a lone surrogate, which is not text")
    if may_be_empty or "" not in article.metadata.values():
        return article
    return replace(article, metadata={name: text for name, text in article.metadata.items() if text})
