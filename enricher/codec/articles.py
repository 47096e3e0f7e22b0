"""Reads articles: bytes -> `Article`, or `InvalidArticle` and nothing else (`schemas/article.v1.schema.json`).

The rules of the schema are here, one function each; nothing about tokens, models or Kafka. No message contains text of the
article, because messages reach logs and headers that more people may read than the articles.
"""

from __future__ import annotations

import sys
from typing import Any
from unicodedata import category

import orjson

from enricher.errors import InvalidArticle
from enricher.records import Article

MAX_ID_CHARS = 512
"""Long enough for any URL or hash in use as an id, short enough for a log line and an index key."""

METADATA_FIELDS = ("language", "source", "url", "published_at")
"""The fields of an article that its enriched record repeats."""

_REGISTRY_MAGIC = 0
_REGISTRY_PREFIX_BYTES = 5
"""Confluent's wire format: a zero byte and a schema id of 4 bytes before the JSON."""

_SCHEMA_NOT_JSON = "value has a schema id but is not JSON: Avro and Protobuf are not supported"
_AVRO_FILE = b"Obj\x01"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def decode_article(value: bytes, *, max_article_chars: int, max_value_bytes: int = sys.maxsize) -> Article:
    """Read one article; title and body together may have `max_article_chars` Unicode code points.

    A value above `max_value_bytes` is not parsed: nested arrays take 0.15 s and 50 MB of memory per megabyte. A schema id
    prefix of Confluent and a UTF-8 byte order mark (RFC 8259, section 8.1) are skipped. The last of duplicate keys counts.
    NaN, infinite numbers, lone surrogates and more than 1024 levels are not JSON, in any field.

    Raises only InvalidArticle; its message names the rule and the field, never the content.
    """
    if len(value) > max_value_bytes:
        raise InvalidArticle(f"value has {len(value)} bytes, at most {max_value_bytes} are allowed")
    document = _document(_json_part(value), registered=value[:1] == bytes([_REGISTRY_MAGIC]))
    article = Article(
        id=_required(document, "id"),
        title=_optional(document, "title") or "",
        body=_required(document, "body"),
        metadata={name: _string(name, text) for name in METADATA_FIELDS if (text := document.get(name)) is not None},
    )
    _check_id(article.id)
    _check_texts(article, max_article_chars)
    return article


def _json_part(value: bytes) -> bytes:
    """The value without its prefixes. JSON never begins with a zero byte."""
    if value and value[0] == _REGISTRY_MAGIC:
        value = value[_REGISTRY_PREFIX_BYTES:]
    return value.removeprefix(_BYTE_ORDER_MARK)


def _document(value: bytes, *, registered: bool) -> dict[str, Any]:
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        reason = _SCHEMA_NOT_JSON if registered else _not_json(value, error)
    else:
        if type(document) is dict:
            return document
        reason = "value is not a JSON object"
    raise InvalidArticle(reason)


def _not_json(value: bytes, error: orjson.JSONDecodeError) -> str:
    """Why the value is not JSON, as far as its bytes tell; the parser's message for other encodings is misleading."""
    if value.startswith(_AVRO_FILE):
        return "value is not JSON but an Avro file"
    try:
        value.decode()
    except UnicodeDecodeError as undecodable:
        at = f"byte {undecodable.start}"
        return f"value is not UTF-8, as JSON is ({at}): another encoding, such as Latin-1, or a binary format, such as Avro"
    # orjson's messages are fixed texts; the error itself contains the document, so it is not chained.
    return f"value is not valid JSON: {error.msg} (character {error.pos})"


def _required(document: dict[str, Any], name: str) -> str:
    if name not in document:
        raise InvalidArticle(f"{name} is missing")
    return _string(name, document[name])


def _optional(document: dict[str, Any], name: str) -> str | None:
    """Null counts as absent: many serialisers write every field."""
    value = document.get(name)
    return None if value is None else _string(name, value)


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArticle(f"{name} is not a string")
    return value


def _check_id(text: str) -> None:
    if not text:
        raise InvalidArticle("id is empty")
    if len(text) > MAX_ID_CHARS:
        raise InvalidArticle(f"id has {len(text)} characters, at most {MAX_ID_CHARS} are allowed")


def _check_texts(article: Article, max_article_chars: int) -> None:
    chars = len(article.title) + len(article.body)
    if chars > max_article_chars:
        raise InvalidArticle(f"title and body have {chars} characters, at most {max_article_chars} are allowed")
    if not (_has_text(article.title) or _has_text(article.body)):
        raise InvalidArticle("title and body have no visible character")


def _has_text(text: str) -> bool:
    """Whether the text has a character outside the Unicode categories Z* (separators) and C* (control, unassigned).

    Tokenizers of the BERT family drop the same categories, so such an article has no tokens. Fast: nearly every text begins
    with a letter or a digit, and `lstrip` skips long runs of white space in C.
    """
    return text[:1].isalnum() or any(category(character)[0] not in "ZC" for character in text.lstrip())
