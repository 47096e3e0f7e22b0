"""Turns a record of the output topic into the document that it writes to the search index, or deletes. Pure.

A document has the fields of its record (`schemas/enriched-record.v1.schema.json`), and also:

- `name` of each entity: its text in the spelling that articles share (`name_of`);
- `ids`: the ids that the catalogue gives its entities, each once, if the worker has one; `named_ids`: the same behind the
  names of their entries and a tab, which neither contains, for facets;
- `facets`: for each label the names of its entities, each once, so that aggregations need no nested query;
- `title` and `body`, if records contain their article (`output.article=whole`), instead of the whole `article`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from enricher.worker.articles.pointers import MISSING, body_finder, parse_pointer
from enricher.worker.articles.record_formats import record_as_json
from enricher.worker.records import RawRecord
from enricher.worker.records.outcomes import epoch_of

MAX_ID_BYTES = 512
"""The limit of OpenSearch and Elasticsearch."""
MAX_VERSION = 2**63 - 1
_VERSION, _CONTENT_TYPE = "enricher.version", "content-type"
_TOPIC, _TOPIC_ID = "enricher.source.topic", "enricher.source.topic.id"
_DIGITS = re.compile(rb"0|[1-9][0-9]{0,18}")
_MAX_NAME = 255


class NoDocument(Exception):
    """A record from which no document can be made. The message names the broken rule, without text of the record."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A topic and an epoch: versions of one epoch are comparable only if their articles come from one topic.

    `topic_id` is None if the headers of the record name none.
    """

    topic: str
    topic_id: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Document:
    """One write: `body`, a JSON object, is the document; None deletes it. `raw`: the record of the output topic."""

    id: str
    version: int
    body: bytes | None
    raw: RawRecord
    origin: Origin

    @property
    def size_bytes(self) -> int:
        """Memory of the document and of its record."""
        return len(self.body or b"") + len(self.id) + self.raw.size_bytes


class DocumentMaker:
    """Makes documents. `identified_by`: the setting `index.document_id`.

    `fields`: the setting `articles.fields`, which says where the title and the body of a whole article are.
    """

    def __init__(self, identified_by: Literal["key", "id"] = "key", fields: Mapping[str, str] | None = None) -> None:
        self._by_key = identified_by == "key"
        where = {name: (fields or {}).get(name, f"/{name}") for name in ("title", "body")}
        self._finders = {name: body_finder(parse_pointer(pointer)) for name, pointer in where.items()}

    def document(self, raw: RawRecord) -> Document:
        """The document of a record. Raises NoDocument; SettingsError if the packages for its format are missing."""
        headers = dict(raw.headers)  # of several headers with one name the last counts, and the worker's are last
        version = version_in(headers)
        key = (raw.key or b"").decode("utf-8", "surrogateescape") if self._by_key or raw.value is None else ""
        if raw.value is None:
            if not key:
                raise NoDocument("a tombstone without a key deletes nothing")
            return Document(_document_id(key), version, None, raw, _origin_in(headers, version))
        record = _record(raw.value, headers.get(_CONTENT_TYPE))
        name = key or record.get("id")
        if not isinstance(name, str) or not name:
            raise NoDocument("the record has neither a key nor an id")
        if not self._by_key and raw.key and raw.key != name.encode("utf-8", "surrogatepass"):
            raise NoDocument(
                "with index.document_id=id keys must be ids: a tombstone, which has only its key, would delete nothing"
            )
        body = orjson.dumps(self._fields(record))
        return Document(_document_id(name), version, body, raw, _origin_in(headers, version))

    def _fields(self, record: dict[str, Any]) -> dict[str, Any]:
        article = record.pop("article", None)
        if isinstance(article, dict):
            for name, find in self._finders.items():
                value = find(article)
                if isinstance(value, list) and all(isinstance(part, str) for part in value):
                    value = str(record.get("body_separator") or "\n\n").join(value)
                if value is not MISSING and isinstance(value, str):
                    record[name] = value
        for entity in record.get("entities") or ():
            entity["name"] = name_of(entity["text"])
        if "catalogue" in record:
            known = {each["id"]: each.get("catalogue_name") for each in record.get("entities") or () if "id" in each}
            record["ids"] = [*known]
            record["named_ids"] = [f"{name or entry_id}\t{entry_id}" for entry_id, name in known.items()]
        record["facets"] = facets_of(record.get("entities") or ())
        return record


def version_in(headers: Mapping[str, bytes | None]) -> int:
    """The version of a record. Raises NoDocument if it is missing or not a version."""
    digits = headers.get(_VERSION)
    if digits is None:
        raise NoDocument("the record has no header enricher.version: an older worker or another program wrote it")
    if not _DIGITS.fullmatch(digits) or int(digits) > MAX_VERSION:
        raise NoDocument("the header enricher.version is not a whole number below 2^63")
    return int(digits)


def facets_of(entities: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The names of the entities by label, each once, in the order of the article.

    A dot in a label becomes `_`, because the index would take it for an object in an object.
    """
    names: dict[str, dict[str, None]] = {}
    for entity in entities:
        if name := entity["name"]:
            names.setdefault(str(entity["label"]).replace(".", "_"), {})[name] = None
    return {label: list(found) for label, found in names.items()}


def _record(value: bytes, content_type: bytes | None) -> dict[str, Any]:
    record, is_ours = {}, False
    try:
        record = orjson.loads(record_as_json(value, content_type))
        is_ours = all(isinstance(each["text"], str) and "label" in each for each in record.get("entities") or ())
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # not chained: the error may quote the value
    if not is_ours:
        raise NoDocument("the value is not an enriched record")
    return record


def _document_id(name: str) -> str:
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        raise NoDocument(
            "the key is not UTF-8, so it cannot identify a document: publish articles with their id as key"
        ) from None
    if size_bytes > MAX_ID_BYTES:
        raise NoDocument(f"the document's id has more than {MAX_ID_BYTES} bytes, which the index does not accept")
    return name


def _origin_in(headers: Mapping[str, bytes | None], version: int) -> Origin:
    topic, topic_id = (headers.get(name) for name in (_TOPIC, _TOPIC_ID))
    if not topic:
        raise NoDocument("the record has no header enricher.source.topic: another program wrote it")
    text = topic[:_MAX_NAME].decode("utf-8", "backslashreplace")
    return Origin(
        text, topic_id[:_MAX_NAME].decode("utf-8", "backslashreplace") if topic_id else None, epoch_of(version)
    )


def name_of(text: str) -> str:
    """The text in NFC, without format characters, and with one space for any run of white space; empty if nothing is left.

    Line breaks, no-break spaces, soft hyphens and zero-width spaces come with the layout of a page; they are no part of a
    name.
    """
    if not text.isascii():
        shown = "".join(each for each in text if unicodedata.category(each) != "Cf")
        text = unicodedata.normalize("NFC", shown)
    return " ".join(text.split())
