"""Turns input records into articles, in two steps: find the document in the value, then the article in the document.

The first step knows CloudEvents, frames, formats and delete events (`envelope`, `formats`); the second step knows the fields
(`mapping`), markup, and the parts that a record repeats. Whatever a record contains, it becomes an article, a tombstone or
an InvalidArticle: one record must not end the worker. Only a schema that is not here yet is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from enricher.errors import EnricherError, InvalidArticle
from enricher.worker.articles.envelope import BYTE_ORDER_MARK, Frame, json_part, read_frame, unwrap
from enricher.worker.articles.formats import NOT_AN_OBJECT, ReadDocument, read_document, too_large
from enricher.worker.articles.mapping import NO_DEFAULTS, FieldMapping, check_article
from enricher.worker.articles.pointers import finder, is_unicode, parse_pointer
from enricher.worker.articles.record_values import limit_levels
from enricher.worker.articles.schemas import Decoders
from enricher.worker.articles.transforms import TransformDocument
from enricher.worker.records import Article, Headers, RawRecord, Skipped, SourceMap, Tombstone, hot_record

ReadMarkup = Callable[[Sequence[str], str], tuple[str, SourceMap] | None]
"""Reads the text in the blocks of a body, and maps it to the blocks as they are joined with a separator. Returns None if
the blocks are text already."""
Scalar = str | int | bool


@hot_record(eq=False)
class _Opened:
    """The document in a record, and where it came from."""

    document: dict[str, Any]
    payload: bytes
    """The value, or the content of its frame if that is the whole value."""
    is_json: bool
    """Whether the payload is the document's JSON. Texts of other formats may have lone surrogates."""
    lent: Mapping[str, str | None]
    """Values from the event around the document, for fields that the document lacks."""


class ArticleReader:
    """Turns input records into articles.

    `decoders` read values that name a schema; `read_plain` reads all other values.
    `deletes`: which documents are delete events. `transform`: a team's own code, which makes another document of each that
    is no delete event. `read_markup`: reads the text in bodies with markup; then their sources may have `max_value_bytes`
    characters. `keep_document`: keep the whole document, as JSON, in the article. Safe in several threads if `decoders` is.
    """

    def __init__(  # noqa: PLR0913  each part has a name
        self,
        *,
        max_article_chars: int,
        max_value_bytes: int,
        mapping: FieldMapping | None = None,
        decoders: Decoders | None = None,
        read_plain: ReadDocument = read_document,
        deletes: DeleteEvents | None = None,
        transform: TransformDocument | None = None,
        read_markup: ReadMarkup | None = None,
        keep_document: bool = False,
    ) -> None:
        self._max_article_chars = max_article_chars
        self._max_source_chars = max_article_chars if read_markup is None else max_value_bytes
        self._max_value_bytes = max_value_bytes
        self._mapping = mapping or FieldMapping()
        self._decoders = decoders
        self._read_plain = read_plain
        self._plain_is_json = read_plain is read_document
        self._deletes = deletes
        self._transform = transform
        self._read_markup = read_markup
        self._keep_document = keep_document

    def read(self, raw: RawRecord) -> Article | Tombstone | Skipped:
        """The article of a record that has a value, or the tombstone of a delete event; or the article is skipped.

        Raises InvalidArticle, or SchemaPending from `decoders`.
        """
        assert raw.value is not None, "a record without a value is a tombstone"
        if raw.headers or self._decoders is not None:
            return self._article(self._unwrap(raw.value, raw.headers), raw)
        # The usual case, without calls that would do nothing: they took a tenth of the time.
        document = self._read_plain(raw.value, self._max_value_bytes)
        return self._article(_Opened(document, raw.value, self._plain_is_json, NO_DEFAULTS), raw)

    # ---- the document in a value

    def _unwrap(self, value: bytes, headers: Headers) -> _Opened:
        """The document in a value that may be an event, or have a frame."""
        if len(value) > self._max_value_bytes:  # before an event in JSON or a frame is looked at
            raise too_large(value, self._max_value_bytes)
        event = unwrap(value, headers) if headers else None
        if event is None:
            return self._open(value, headers)
        lent = {"id": event.id, "source": event.source, "published_at": event.time}
        if event.document is not None:
            return _Opened(_object(event.document), value, self._plain_is_json, lent)
        if event.data is None:
            raise InvalidArticle("the CloudEvent has no data")
        if event.data == value:
            opened = self._open(value, headers)
            return _Opened(opened.document, opened.payload, opened.is_json, lent)
        # Headers about the value, such as that of its schema, say nothing about data within the value.
        return _Opened(self._open(event.data, ()).document, value, self._plain_is_json, lent)

    def _open(self, value: bytes, headers: Headers) -> _Opened:
        """The document in a value that may have a frame, which names its schema."""
        if self._decoders is None:
            return self._open_plain(value)
        frame = read_frame(value, headers)
        if frame is None:
            return self._open_plain(value)
        return _Opened(_decode(frame, self._decoders), frame.payload, is_json=False, lent=NO_DEFAULTS)

    def _open_plain(self, value: bytes) -> _Opened:
        return _Opened(self._read_plain(value, self._max_value_bytes), value, self._plain_is_json, NO_DEFAULTS)

    # ---- the article in a document

    def _article(self, opened: _Opened, raw: RawRecord) -> Article | Tombstone | Skipped:
        document, payload, is_json, lent = opened.document, opened.payload, opened.is_json, opened.lent
        if self._deletes is not None and (tombstone := self._deletes.tombstone(document, raw, lent)):
            return tombstone
        if self._transform is not None:
            found = self._transform(document, raw.headers)
            if found is None:
                return Skipped()
            document, payload = found
        article = self._mapping.article(document, raw, self._max_source_chars, lent)
        if article.further is not None and len(article.further) > self._max_value_bytes:
            size = f"{len(article.further)} bytes as JSON, at most {self._max_value_bytes} are allowed"
            raise InvalidArticle(f"what articles.metadata names has {size}")
        if self._read_markup is not None:
            article = self._without_markup(article, document, self._read_markup)
        if lent or not is_json:
            article = _check_texts(article, may_be_empty=bool(lent))
        if not self._keep_document:
            return article
        if self._transform is not None:
            is_json = True
        text = json_part(payload) if is_json else _own_json(payload, document)
        return replace(article, document=limit_levels(self._as_json(document) if text is None else text))

    def _without_markup(self, article: Article, document: dict[str, Any], read_markup: ReadMarkup) -> Article:
        """The article with the text of its body, to which the limit of characters applies."""
        blocks = None if article.body_separator is None else self._mapping.blocks(document)
        found = read_markup([article.body] if blocks is None else blocks, article.body_separator or "")
        if found is not None:
            article = replace(article, body=found[0], source_map=found[1])
        check_article(article, self._max_article_chars)
        return article

    def _as_json(self, document: dict[str, Any]) -> bytes:
        """A document that was not JSON, as JSON."""
        try:
            text = orjson.dumps(document)
        except TypeError:  # not chained: its message may contain the document
            reason = "the document cannot be written as JSON, or is nested too deeply"
        else:
            if len(text) <= self._max_value_bytes:
                return text
            reason = f"the document has {len(text)} bytes as JSON, at most {self._max_value_bytes} are allowed"
        raise InvalidArticle(reason)


class DeleteEvents:
    """Recognises delete events: documents with one of `values` at a JSON Pointer, as the setting `articles.deleted` says.

    Change data capture publishes a delete as a value with an operation. Without this, each would be a dead letter. `ids`
    finds the id of the article that an event deletes. Raises ValueError for a malformed pointer.
    """

    def __init__(self, field: str, values: Collection[Scalar], ids: FieldMapping) -> None:
        self.ids = ids
        self._find = finder(parse_pointer(field))
        # 1 and true are equal to Python, but not to JSON.
        self._values = frozenset((type(value), value) for value in values)

    def is_delete(self, document: dict[str, Any]) -> bool:
        """Whether a document is a delete event."""
        value = self._find(document)
        return isinstance(value, Scalar) and (type(value), value) in self._values

    def tombstone(
        self, document: dict[str, Any], raw: RawRecord, defaults: Mapping[str, str | None]
    ) -> Tombstone | None:
        """The tombstone of a delete event; None for other documents. `defaults`: see `FieldMapping.article`.

        Every output has its input's key. Only if there is none, the id identifies what is deleted, as it identifies a
        record without a key in an index. Raises InvalidArticle for an event with neither.
        """
        if not self.is_delete(document):
            return None
        if raw.key:
            return Tombstone()
        try:
            text = self.ids.id_text(document, raw, defaults)
            reason = "" if is_unicode(text) else "id has a lone surrogate, which is not text"
        except InvalidArticle as error:
            reason = str(error)
        if reason:
            raise InvalidArticle(f"the delete event has neither a key nor an id: {reason}")
        return Tombstone(text.encode())


def _decode(frame: Frame, decoders: Decoders) -> dict[str, Any]:
    """Decode the payload by the frame's schema.

    A decoder should raise InvalidArticle only. A record on which it fails in another way is refused, because it would end
    one process after the other. Errors that no record causes pass through: a lack of memory, and those of the look-up of
    the decoder.
    """
    decoder = decoders.decoder(frame.reference)
    try:
        return _object(decoder(frame.payload))
    except (EnricherError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  whatever a library raises
        reason = f"the decoder of schema {frame.reference} failed with {type(error).__name__}"
    raise InvalidArticle(reason)  # not chained: the library's message may contain the document


def _object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidArticle(NOT_AN_OBJECT)
    return document


def _own_json(payload: bytes, document: dict[str, Any]) -> bytes | None:
    """The payload if that is the JSON of the document; None if it is not."""
    text = payload.removeprefix(BYTE_ORDER_MARK)
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return text if found.keys() == document.keys() else None


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
