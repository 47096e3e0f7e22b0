"""The rules for articles in JSON (`schemas/article.v1.schema.json`), one function each, which raise only `InvalidArticle`.

Nothing about tokens, models or Kafka; `mapping` finds the fields. No message contains text of the article, because messages
reach logs and headers that more people may read than the articles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unicodedata import category

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.framing import ID_MAGIC, ID_PREFIX_BYTES
from enricher.worker.records import Article

MAX_ID_CHARS = 512
"""Long enough for any URL or hash in use as an id, short enough for a log line and an index key."""

PARAGRAPH_SEPARATOR = "\n\n"
"""The default of the text between the paragraphs of a body that is an array of strings."""

NOT_AN_OBJECT = "value is not a JSON object"

_SCHEMA_NOT_JSON = "value has a schema id but is not JSON: articles.format=registry reads Avro and Protobuf"
_AVRO_FILE = b"Obj\x01"

ReadDocument = Callable[[bytes, int], dict[str, Any]]
"""Turns a value, which may have so many bytes, into its document, with the types of JSON. Raises InvalidArticle."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_document(value: bytes, max_value_bytes: int) -> dict[str, Any]:
    """The JSON object in a value. Raises InvalidArticle.

    A value above `max_value_bytes` is not parsed: nested arrays take 0.15 s and 50 MB of memory per megabyte. A schema id
    prefix of Confluent and a UTF-8 byte order mark (RFC 8259, section 8.1) are skipped. The last of duplicate keys counts.
    NaN, infinite numbers, lone surrogates and more than 1024 levels are not JSON.
    """
    if len(value) > max_value_bytes:
        raise too_large(value, max_value_bytes)
    text = json_part(value)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        reason = _SCHEMA_NOT_JSON if value[:1] == ID_MAGIC else _not_json(text, error)
    else:
        if type(document) is dict:
            return document
        reason = NOT_AN_OBJECT
    raise InvalidArticle(reason)


def too_large(value: bytes, max_value_bytes: int) -> InvalidArticle:
    """The error for a value that is too large to be parsed."""
    return InvalidArticle(f"value has {len(value)} bytes, at most {max_value_bytes} are allowed")


def json_part(value: bytes) -> bytes:
    """The value without its prefixes."""
    if value[:1] == ID_MAGIC:
        value = value[ID_PREFIX_BYTES:]
    return value.removeprefix(BYTE_ORDER_MARK)


def join_paragraphs(body: object, separator: str, max_chars: int, *, at: str = "") -> str:
    """The paragraphs of a body as one text. `at`: where it was found, for messages. Raises InvalidArticle.

    The length is checked before joining: separators can make a text of a thousand empty strings many times larger.
    """
    if not isinstance(body, list):
        raise InvalidArticle(f"body is not a string{at}")
    if not all(isinstance(paragraph, str) for paragraph in body):
        raise InvalidArticle(f"body is an array with an item that is not a string{at}")
    chars = sum(map(len, body)) + len(separator) * max(0, len(body) - 1)
    if chars > max_chars:
        raise InvalidArticle(f"body has {chars} characters when it is joined, at most {max_chars} are allowed")
    return separator.join(body)


def check_article(article: Article, max_article_chars: int) -> None:
    """Check the bounds of id, title and body. Raises InvalidArticle."""
    check_id(article.id)
    chars = len(article.title) + len(article.body)
    if chars > max_article_chars:
        raise InvalidArticle(f"title and body have {chars} characters, at most {max_article_chars} are allowed")
    if not (_has_text(article.title) or _has_text(article.body)):
        raise InvalidArticle("title and body have no visible character")


def _not_json(value: bytes, error: orjson.JSONDecodeError) -> str:
    """Why the value is not JSON, as far as its bytes show; the parser's message for other encodings is misleading."""
    if value.startswith(_AVRO_FILE):
        return "value is not JSON but an Avro file"
    try:
        value.decode()
    except UnicodeDecodeError as undecodable:
        at = f"byte {undecodable.start}"
        return f"value is not UTF-8, as JSON is ({at}): another encoding, such as Latin-1, or a binary format, such as Avro"
    # orjson's messages are fixed texts; the error itself contains the document, so it is not chained.
    return f"value is not valid JSON: {error.msg} (character {error.pos})"


def not_an_id(value: object, *, at: str = "") -> str:
    """Why a value that is not a string is refused as an id, and what can be done about it."""
    hint = ": articles.scalar_ids=true accepts numbers and booleans" if isinstance(value, int | float) else ""
    return f"id is not a string{at}{hint}"


def check_id(text: str) -> None:
    """Raise InvalidArticle for an id that is empty or too long."""
    if not text:
        raise InvalidArticle("id is empty")
    if len(text) > MAX_ID_CHARS:
        raise InvalidArticle(f"id has {len(text)} characters, at most {MAX_ID_CHARS} are allowed")


def _has_text(text: str) -> bool:
    """Whether the text has a character outside the Unicode categories Z* (separators) and C* (control, unassigned).

    Tokenizers of the BERT family drop the same categories, so such an article has no tokens. Fast: nearly every text begins
    with a letter or a digit, and `lstrip` skips long runs of white space in C.
    """
    return text[:1].isalnum() or any(category(character)[0] not in "ZC" for character in text.lstrip())
