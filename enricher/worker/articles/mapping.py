"""Documents -> articles: where each field is (`articles.fields` and other settings), and which values it may have.

A document is what any format is decoded to. Nothing here knows formats, markup or events. Messages name fields and where
they were looked for, never the content: they reach logs and headers that more people may read than the articles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeGuard
from unicodedata import category

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.pointers import (
    EACH,
    MISSING,
    Find,
    body_finder,
    finder,
    is_unicode,
    parse_pointer,
)
from enricher.worker.records import Article, RawRecord

METADATA_FIELDS = ("language", "source", "url", "published_at")
"""The fields of an article that its enriched record repeats."""
OPTIONAL_FIELDS = ("title", *METADATA_FIELDS)
FIELDS = ("id", "title", "body", *METADATA_FIELDS)
KEY = "key"
HEADER = "header:"

MAX_ID_CHARS = 512
"""Long enough for any URL or hash in use as an id, short enough for a log line and an index key."""
MAX_NAME_CHARS = 128
"""The longest name in `articles.metadata`: names become fields of records, and no index accepts a longer one."""
MAX_CHARS: Mapping[str, int] = {
    "title": 100_000,
    "language": 256,
    "source": 2_048,
    "url": 8_192,
    "published_at": 256,
}
"""The most characters of each optional field. A tag of BCP 47 has 35 characters; web servers refuse longer URLs."""

PARAGRAPH_SEPARATOR = "\n\n"
"""The text between the paragraphs of a body that is an array of strings. No entity crosses it (rules/borders.py)."""

_IN_RECORD = "metadata"
"""The field of a record that contains the values of `articles.metadata`; it is one of the levels that can be written."""
_1970 = datetime(1970, 1, 1)  # noqa: DTZ001  without a zone, whose text would be +00:00
_SECONDS_BELOW = 100_000_000_000
"""A smaller number is a time in seconds, until the year 5138; a larger one in milliseconds, from 1973 on."""


class FieldMapping:
    """Finds the fields of articles, where `fields` says, else where `schemas/article.v1.schema.json` says.

    `fields`: JSON Pointers by field; all but `body` may be `header:NAME`, and `id` also `key`. `metadata`: JSON Pointers to
    further values, by the names under which records keep them. `scalar_ids`: accept numbers and booleans as ids.
    `drop_wrong`: read articles without the optional fields that are wrong. Raises ValueError.
    """

    def __init__(
        self,
        fields: Mapping[str, str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        scalar_ids: bool = False,
        drop_wrong: bool = False,
    ) -> None:
        fields, metadata = fields or {}, metadata or {}
        check_fields(fields)
        check_metadata(metadata)
        where = {name: fields.get(name, f"/{name}") for name in FIELDS}
        names = {name: parse_pointer(each) for name, each in where.items() if not is_beside(each)}
        # Most values are at the top level of a document, where finding them by key takes a third of the time of a call.
        keys = {name: each[0] for name, each in names.items() if len(each) == 1}
        list_at, each, _ = f"{where['body']}/".partition(f"/{EACH}/")
        self._scalar_ids, self._drop_wrong = scalar_ids, drop_wrong
        self._at = {name: f" at {each}" if name in fields else "" for name, each in where.items()}
        self._no_body = f"body is missing{self._at['body']}{f': there is no list at {list_at}' if each else ''}"
        self._id_key, self._body_key = keys.get("id"), keys.get("body")
        self._id_is_beside = "id" not in names
        finds = {name: finder(names[name]) if name in names else _finder_beside(each) for name, each in where.items()}
        self._find_id = finds["id"]
        self._find_body = body_finder(names["body"])
        self._optional = tuple(
            (name, keys.get(name), finds[name], name not in names, MAX_CHARS[name]) for name in OPTIONAL_FIELDS
        )
        self._further = tuple((name, finder(parse_pointer(each))) for name, each in metadata.items())

    def article(
        self,
        document: dict[str, Any],
        raw: RawRecord,
        max_article_chars: int,
    ) -> Article:
        """The article in a document that came in `raw`. Raises InvalidArticle."""
        id_text = document.get(self._id_key) if self._id_key else None
        if type(id_text) is not str:
            id_text = self._id(document, raw)
        body, separator = document.get(self._body_key, MISSING) if self._body_key else self._find_body(document), None
        if type(body) is not str:
            if body is MISSING:
                raise InvalidArticle(self._no_body)
            separator = PARAGRAPH_SEPARATOR
            body = join_paragraphs(body, max_article_chars, at=self._at["body"])
        further = self._further_json(document) if self._further else None
        texts, dropped = self._optional_texts(document, raw)
        article = Article(id_text, texts.pop("title", ""), body, texts, further, separator, dropped=tuple(dropped))
        check_article(article, max_article_chars)
        return article

    def id_text(self, document: dict[str, Any], raw: RawRecord) -> str:
        """The id alone. Raises InvalidArticle if there is none that an article may have."""
        text = self._id(document, raw)
        check_id(text)
        return text

    def blocks(self, document: dict[str, Any]) -> list[str] | None:
        """The strings of a body that is an array of them; None if it is one string. For documents with an article."""
        body = self._find_body(document)
        return body if isinstance(body, list) else None

    def _optional_texts(self, document: dict[str, Any], raw: RawRecord) -> tuple[dict[str, str], Sequence[str]]:
        """The optional fields, and the names of those that are left out because they are wrong."""
        texts: dict[str, str] = {}
        dropped: list[str] = []
        for name, key, find, is_beside, max_chars in self._optional:
            value = document.get(key) if key else find(raw if is_beside else document)
            # Nearly always true, and a call would cost more than this.
            if type(value) is str and len(value) <= max_chars:
                texts[name] = value
            # Null counts as absent: many serialisers write every field.
            elif value is not None and value is not MISSING:
                try:
                    text = optional_text(name, value, self._at[name])
                except InvalidArticle:
                    if not self._drop_wrong:
                        raise
                    dropped.append(name)
                else:
                    if text is not None:
                        texts[name] = text
        return texts, dropped

    def _id(self, document: dict[str, Any], raw: RawRecord) -> str:
        value = self._find_id(raw if self._id_is_beside else document)
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            raise InvalidArticle(f"id is not UTF-8{self._at['id']}")
        if value is MISSING:
            raise InvalidArticle(f"id is missing{self._at['id']}")
        if not self._scalar_ids or not isinstance(value, int | float):
            hint = ": articles.scalar_ids=true accepts numbers and booleans" if isinstance(value, int | float) else ""
            raise InvalidArticle(f"id is not a string{self._at['id']}{hint}")
        return _scalar(value, self._at["id"])

    def _further_json(self, document: dict[str, Any]) -> bytes | None:
        """The values of `articles.metadata` as a JSON object; None if the document has none of them.

        Not every value that can be read can be written: more than 254 levels cannot, nor integers beyond 64 bits.
        """
        found = {name: value for name, find in self._further if (value := find(document)) is not MISSING}
        if not found:
            return None
        try:
            in_record = orjson.dumps({_IN_RECORD: found})
        except TypeError:  # not chained: its message may contain the document
            unwritable = next(name for name, value in found.items() if not _is_writable(value))
        else:
            return in_record[len(f'{{"{_IN_RECORD}":') : -1]
        raise InvalidArticle(f"{unwritable} of articles.metadata cannot be written as JSON, or is nested too deeply")


def check_fields(fields: Mapping[str, str]) -> None:
    """Raise ValueError for an unknown field and for a malformed pointer."""
    for name, where in fields.items():
        if name not in FIELDS:
            raise ValueError(f"an article has no field '{name}'; the fields are {', '.join(FIELDS)}")
        if where == HEADER:
            raise ValueError(f"the name of the header is missing: {name} is at header:NAME")
        if where == KEY and name != "id":
            raise ValueError(f"{name} is in the document or a header: only id may be the record's key")
        if name == "body" and is_beside(where):
            raise ValueError("body is in the document, never in a header")
        if not is_beside(where):
            check_pointer(name, where)


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise ValueError for a name that cannot be one, and for a malformed pointer."""
    for name, where in metadata.items():
        if not name:
            raise ValueError(f"the name of {where} is empty")
        if len(name) > MAX_NAME_CHARS:
            raise ValueError(f"a name has {len(name)} characters, at most {MAX_NAME_CHARS} are allowed")
        if not is_unicode(name):
            raise ValueError(f"the name of {where} has a lone surrogate, which cannot be written")
        check_pointer(name, where)


def check_pointer(name: str, where: str) -> None:
    """Raise ValueError if a pointer is malformed, or has a `*` that stands for nothing. `name`: of the field, for messages.

    A second `*` is refused because lists within blocks are usually the parts of one paragraph, such as its spans: the
    separator would tear sentences, and entities, apart.
    """
    names = parse_pointer(where)
    if EACH not in names:
        return
    if name != "body":
        raise ValueError(f"{name} cannot have * in its pointer: only body is made of all items of a list")
    if names.count(EACH) > 1:
        raise ValueError("body can have one * in its pointer: the items of one list are its paragraphs")
    if names[0] == EACH:
        raise ValueError("body has * at the beginning of its pointer: a document is an object, so name its list first")


def is_beside(where: str) -> bool:
    """Whether a field is beside the document: in the record's key or a header."""
    return where == KEY or where.startswith(HEADER)


def _finder_beside(where: str) -> Find:
    """A function that finds the text of a record's key or last header of a name; its bytes if they are not UTF-8."""
    name = where.removeprefix(HEADER)

    def find(raw: RawRecord) -> object:
        named = (value for each, value in reversed(raw.headers) if each == name)
        value = raw.key if where == KEY else next(named, None)
        if value is None:
            return MISSING
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value

    return find


def _scalar(value: float, at: str) -> str:
    """A whole number or a boolean as JSON writes it. Raises InvalidArticle for other numbers.

    Other numbers are rounded when they are read, as are whole numbers beyond 64 bits in JSON, so two could become one id.
    """
    if not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise InvalidArticle(f"id is a number that is not whole, or has more than 64 bits{at}")
    return orjson.dumps(value).decode()


def _is_writable(value: object) -> bool:
    try:
        orjson.dumps({_IN_RECORD: {"": value}})
    except TypeError:
        return False
    return True


def join_paragraphs(body: object, max_chars: int, *, at: str = "") -> str:
    """The paragraphs of a body as one text. `at`: where it was found, for messages. Raises InvalidArticle.

    The length is checked before joining: separators can make a text of a thousand empty strings many times larger.
    """
    if not isinstance(body, list):
        raise InvalidArticle(f"body is not a string{at}")
    if not all(isinstance(paragraph, str) for paragraph in body):
        raise InvalidArticle(f"body is an array with an item that is not a string{at}")
    chars = sum(map(len, body)) + len(PARAGRAPH_SEPARATOR) * max(0, len(body) - 1)
    if chars > max_chars:
        raise InvalidArticle(f"body has {chars} characters when it is joined, at most {max_chars} are allowed")
    return PARAGRAPH_SEPARATOR.join(body)


def check_article(article: Article, max_article_chars: int) -> None:
    """Check the bounds of id, title and body. Raises InvalidArticle."""
    title, body = article.title, article.body
    check_id(article.id)
    chars = len(title) + len(body)
    if chars > max_article_chars:
        raise InvalidArticle(f"title and body have {chars} characters, at most {max_article_chars} are allowed")
    # Nearly every text begins with a letter or a digit, and a call would take longer than this.
    if not (title[:1].isalnum() or _has_text(title) or _has_text(body)):
        raise InvalidArticle("title and body have no visible character")


def check_id(text: str) -> None:
    """Raise InvalidArticle for an id that is empty or too long."""
    if not text:
        raise InvalidArticle("id is empty")
    if len(text) > MAX_ID_CHARS:
        raise InvalidArticle(f"id has {len(text)} characters, at most {MAX_ID_CHARS} are allowed")


def _has_text(text: str) -> bool:
    """Whether the text has a character outside the Unicode categories Z* (separators) and C* (control, unassigned).

    Tokenizers of the BERT family drop the same categories, so such an article has no tokens. `lstrip` skips long runs of
    white space in C.
    """
    return any(category(character)[0] not in "ZC" for character in text.lstrip())


def optional_text(name: str, value: object, at: str = "") -> str | None:
    """The text of a field; None if it counts as absent. `at`: where it was found, for messages. Raises InvalidArticle.

    A `published_at` may be a number; 0 counts as absent, because serializers write it for a time that is not set.
    """
    if name == "published_at" and _is_whole(value):
        return _time_text(int(value), at) if value else None
    if not isinstance(value, str):
        raise InvalidArticle(f"{name} is not a string{at}")
    if len(value) > MAX_CHARS[name]:
        raise InvalidArticle(f"{name} has {len(value)} characters, at most {MAX_CHARS[name]} are allowed")
    return value


def _is_whole(value: object) -> TypeGuard[int | float]:
    """Whether JSON Schema calls a value an integer, as it does 1.0."""
    return type(value) is int or (type(value) is float and value.is_integer())


def _time_text(number: int, at: str) -> str:
    """A time since 1970 as RFC 3339 in UTC, like that of Avro's logical types. Raises InvalidArticle."""
    try:
        time = _1970 + (timedelta(seconds=number) if abs(number) < _SECONDS_BELOW else timedelta(milliseconds=number))
    except OverflowError:
        raise InvalidArticle(f"published_at is outside of the years 1 to 9999{at}") from None
    return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds") + "Z"
