"""Articles before anybody writes them, and three layouts, as three teams would invent them.

Each layout has its schemas and the worker's settings for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from tools import ARTICLES

_WORDS = (20, 60)
_DESKS = ("politics", "Sport & Jugend", "local/Köln", "science")


@dataclass(frozen=True, slots=True)
class Text:
    """One article. Several inputs have the same text, each in another form, and differ in their ids."""

    title: str
    paragraphs: tuple[str, ...]
    language: str
    desk: str
    published_at: str


class Texts:
    """Short articles, cut from the samples; the n-th depends on n alone."""

    def __init__(self) -> None:
        samples = [orjson.loads(line) for line in ARTICLES.read_bytes().splitlines()]
        self._titles = [sample["title"] for sample in samples]
        self._bodies = [sample["body"].split() for sample in samples]

    def text(self, number: int) -> Text:
        """Two paragraphs with a title."""
        chosen = Random(number)
        sample = chosen.randrange(len(self._bodies))
        return Text(
            self._titles[sample],
            (self._cut(chosen, sample), self._cut(chosen, sample)),
            "en",
            chosen.choice(_DESKS),
            f"2026-11-{1 + number % 28:02d}T10:00:00Z",
        )

    def _cut(self, chosen: Random, sample: int) -> str:
        words = self._bodies[sample]
        start = chosen.randrange(max(1, len(words) - _WORDS[1]))
        # A character outside the basic plane: offsets are code points, whatever a format counts in.
        return " ".join([*words[start : start + chosen.randrange(*_WORDS)], "\N{ROCKET}"])


SEPARATOR = "\n\n"
"""What the worker joins paragraphs with, by default."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One team's articles.

    `avro` is a record; `avro_references` are the named schemas that it refers to. `protobuf` and `protobuf_references` are
    files by their names, and `message` is the article's full name in them. `document` gives the article as JSON.
    """

    name: str
    document: Callable[[Text, str], dict[str, Any]]
    avro: Mapping[str, Any]
    protobuf: str
    message: str
    json_schema: Mapping[str, Any]
    avro_references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    protobuf_references: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    joined: bool = False
    """Whether the body is an array of paragraphs; otherwise it is one string, with other separators."""

    def body(self, text: Text) -> str:
        """The text that offsets of the body count in."""
        return (SEPARATOR if self.joined else " ").join(text.paragraphs)

    def repeated(self, text: Text) -> dict[str, Any]:
        """What the record must contain of the article beside its id."""
        document = self.document(text, "")
        values = {name: _at(document, pointer) for name, pointer in self.metadata.items()}
        own = {name: _at(document, self.fields.get(name, f"/{name}")) for name in ("language", "published_at")}
        return {
            **{name: value for name, value in own.items() if value is not None},
            **({"metadata": values} if values else {}),
            **({"body_separator": SEPARATOR} if self.joined else {}),
        }

    def settings(self) -> dict[str, str]:
        """The environment that makes a worker read this layout."""
        named = {"FIELDS": self.fields, "METADATA": self.metadata}
        return {f"ENRICHER_ARTICLES__{name}": json.dumps(dict(value)) for name, value in named.items() if value}


def _at(document: Any, pointer: str) -> Any:  # noqa: ANN401  any JSON
    for part in pointer.split("/")[1:]:
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _record(name: str, /, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  Avro's types
    return {
        "type": "record",
        "name": name,
        "namespace": "news",
        "fields": [
            {"name": each, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
            for each, kind in fields.items()
        ],
    }


def _object(required: list[str], **properties: Any) -> dict[str, Any]:  # noqa: ANN401  JSON Schema
    return {"type": "object", "required": required, "properties": properties}


_TEXT = {"type": "string"}
_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}

FLAT = Layout(
    "flat",
    lambda text, article_id: {
        "id": article_id,
        "title": text.title,
        "body": " ".join(text.paragraphs),
        "language": text.language,
        "published_at": text.published_at,
    },
    avro=_record(
        "Flat", id="string", title="string", body="string", language=["null", "string"], published_at=["null", "string"]
    ),
    protobuf="""syntax = "proto3";
package news.flat;
message Article {
  string id = 1;
  string title = 2;
  string body = 3;
  optional string language = 4;
  optional string published_at = 15;
}
""",
    message="news.flat.Article",
    json_schema={**_DRAFT, "title": "Flat", **_object(["id", "body"], id=_TEXT, title=_TEXT, body=_TEXT)},
)
"""As the worker reads it by default."""

NESTED = Layout(
    "nested",
    lambda text, article_id: {
        "uuid": article_id,
        "headline": text.title,
        "content": {"text": " ".join(text.paragraphs), "lang": text.language},
        "desk": {"name": text.desk, "number": len(text.desk)},
        "published_at": text.published_at,
    },
    avro=_record(
        "Nested", uuid="string", headline="string", content="news.Content", desk="news.Desk", published_at="string"
    ),
    avro_references={
        "news.Content": _record("Content", text="string", lang=["null", "string"]),
        "news.Desk": _record("Desk", name="string", number="int"),
    },
    protobuf="""syntax = "proto3";
package news.nested;
import "content.proto";
message Article {
  string uuid = 1;
  string headline = 2;
  news.parts.Content content = 3;
  news.parts.Desk desk = 4;
  string published_at = 5;
}
""",
    protobuf_references={
        "content.proto": """syntax = "proto3";
package news.parts;
message Content {
  string text = 1;
  string lang = 2;
}
message Desk {
  string name = 1;
  int32 number = 2;
}
"""
    },
    message="news.nested.Article",
    json_schema={
        **_DRAFT,
        "title": "Nested",
        **_object(["uuid", "content"], uuid=_TEXT, headline=_TEXT, content=_object(["text"], text=_TEXT, lang=_TEXT)),
    },
    fields={"id": "/uuid", "title": "/headline", "body": "/content/text", "language": "/content/lang"},
    metadata={"desk": "/desk/name", "desk_number": "/desk/number"},
)
"""Fields in other places, schemas that refer to others, and metadata."""

PARAGRAPHS = Layout(
    "paragraphs",
    lambda text, _article_id: {"head": {"title": text.title}, "paragraphs": list(text.paragraphs)},
    avro={
        **_record("Paragraphs", head=_record("Head", title="string")),
        "fields": [
            {"name": "head", "type": _record("Head", title="string")},
            {"name": "paragraphs", "type": {"type": "array", "items": "string"}},
        ],
    },
    protobuf="""syntax = "proto3";
package news.paragraphs;
message Other {
  string other = 1;
}
message Envelope {
  message Unused {
    int32 unused = 1;
  }
  message Article {
    message Head {
      string title = 1;
    }
    Head head = 1;
    repeated string paragraphs = 2;
  }
}
""",
    message="news.paragraphs.Envelope.Article",
    json_schema={
        **_DRAFT,
        "title": "Paragraphs",
        **_object(["paragraphs"], head=_object([], title=_TEXT), paragraphs={"type": "array", "items": _TEXT}),
    },
    fields={"id": "key", "title": "/head/title", "body": "/paragraphs"},
    joined=True,
)
"""The id is the record's key, the body a list of paragraphs, and the Protobuf message the second one inside the second."""

LAYOUTS = (FLAT, NESTED, PARAGRAPHS)
