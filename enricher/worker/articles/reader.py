"""Turns input records into articles, in two steps: find the document in the value, then the article in the document.

The first step knows frames and formats (`envelope`, `formats`); the second step knows delete events, the fields (`mapping`),
markup, and the parts that a record repeats. Whatever a record contains, it becomes an article, a tombstone or
an InvalidArticle: one record must not end the worker. Only a schema that is not here yet is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import orjson

from enricher.errors import EnricherError, InvalidArticle
from enricher.worker.articles.envelope import BYTE_ORDER_MARK, Frame, json_part, read_frame
from enricher.worker.articles.formats import NOT_AN_OBJECT, ReadDocument, read_document, too_large
from enricher.worker.articles.mapping import FieldMapping, check_article
from enricher.worker.articles.pointers import finder, is_unicode, parse_pointer
from enricher.worker.articles.record_values import limit_levels
from enricher.worker.articles.schemas import Decoders
from enricher.worker.articles.transforms import TransformDocument
from enricher.worker.records import Article, RawRecord, Skipped, SourceMap, Tombstone

ReadMarkup = Callable[[Sequence[str], str], tuple[str, SourceMap] | None]
"""Reads the text in the blocks of a body, and maps it to the blocks as they are joined with a separator. Returns None if
the blocks are text already."""
Scalar = str | int | bool


class ArticleReader:
    """Turns input records into articles.

    `decoders` read values that name a schema; `read_plain` reads all other values. `deletes`: which documents are
    delete events. `transform`: a team's own code, which replaces every document that is not a delete event.
    `read_markup`: reads the text in bodies with markup; then their sources may have `max_value_bytes` characters.
    `keep_document`: keep the whole document, as JSON, in the article. Safe in several threads if `decoders` is.
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
        if self._decoders is not None:
            if len(raw.value) > self._max_value_bytes:
                raise too_large(raw.value, self._max_value_bytes)
            if frame := read_frame(raw.value, raw.headers):
                return self._article(_decode(frame, self._decoders), frame.payload, raw, is_json=False)
        document = self._read_plain(raw.value, self._max_value_bytes)
        return self._article(document, raw.value, raw, is_json=self._plain_is_json)

    def _article(
        self, document: dict[str, Any], payload: bytes, raw: RawRecord, *, is_json: bool
    ) -> Article | Tombstone | Skipped:
        """The article in a document. `is_json`: the payload is its JSON; texts of other formats may have lone surrogates."""
        if self._deletes is not None and (tombstone := self._deletes.tombstone(document, raw)):
            return tombstone
        if self._transform is not None:
            found = self._transform(document, raw.headers)
            if found is None:
                return Skipped()
            document, payload = found
        article = self._mapping.article(document, raw, self._max_source_chars)
        if article.further is not None and len(article.further) > self._max_value_bytes:
            size = f"{len(article.further)} bytes as JSON, at most {self._max_value_bytes} are allowed"
            raise InvalidArticle(f"what articles.metadata names has {size}")
        if self._read_markup is not None:
            article = self._without_markup(article, document, self._read_markup)
        if not is_json:
            article = _check_texts(article)
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

    Change data capture publishes a delete as a value with an operation. Without this setting, every delete would be a
    dead letter. `ids` finds the id of the article that an event deletes. Raises ValueError for a malformed pointer.
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

    def tombstone(self, document: dict[str, Any], raw: RawRecord) -> Tombstone | None:
        """The tombstone of a delete event; None for other documents.

        Every output has its input's key. Only if there is none, the id identifies what is deleted, as it identifies a
        record without a key in an index. Raises InvalidArticle for an event with neither.
        """
        if not self.is_delete(document):
            return None
        if raw.key:
            return Tombstone()
        try:
            text = self.ids.id_text(document, raw)
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
    """The payload if it is the document's JSON; else None."""
    text = payload.removeprefix(BYTE_ORDER_MARK)
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return text if found.keys() == document.keys() else None


def _check_texts(article: Article) -> Article:
    """Refuse lone surrogates, which a decoder may let through, and leave out empty metadata.

    In Protobuf a text that is not set is empty. Raises InvalidArticle.
    """
    # Python knows of each text whether it is ASCII, so this takes no time.
    body = "" if article.body.isascii() else article.body
    if not is_unicode("".join((article.id, article.title, body, *article.metadata.values()))):
        texts = {"id": article.id, "title": article.title, "body": article.body, **article.metadata}
        name = next(name for name, text in texts.items() if not is_unicode(text))
        raise InvalidArticle(f"{name} has a lone surrogate, which is not text")
    if "" not in article.metadata.values():
        return article
    return replace(article, metadata={name: text for name, text in article.metadata.items() if text})
