"""How articles are read and records written: formats, field mapping, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from enricher.worker.contracts import PlainFormat, RecordFormat
from enricher.worker.settings.group import Group


def _fields(fields: dict[str, str]) -> dict[str, str]:
    """Check `articles.fields`. Raises ValueError."""
    if fields:
        from enricher.worker.articles.mapping import check_fields  # noqa: PLC0415  loads NumPy, which most commands do not need

        check_fields(fields)
    return fields


def _metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Check `articles.metadata`. Raises ValueError."""
    if metadata:
        from enricher.worker.articles.mapping import check_metadata  # noqa: PLC0415  as above

        check_metadata(metadata)
    return metadata


def _pointer(pointer: str) -> str:
    """Check a pointer of `articles.deleted`. Raises ValueError."""
    from enricher.worker.articles.mapping import check_pointer  # noqa: PLC0415  as above

    check_pointer("articles.deleted", pointer)
    return pointer


class DeleteEventMapping(Group):
    """The documents that delete an article."""

    field: Annotated[str, AfterValidator(_pointer)] = Field(description="A JSON Pointer (RFC 6901).")
    values: tuple[Any, ...] = Field(
        description="A document with one of these there deletes an article: strings, whole numbers or booleans."
    )
    id: Annotated[str, AfterValidator(_pointer)] | None = Field(
        None,
        description="Where such a document has the id of the article, for records without a key. Default: where articles "
        "have it.",
    )

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Raise ValueError in one sentence; pydantic's own words would name each type by itself."""
        if not values or not all(type(value) in {str, int, bool} for value in values):
            raise ValueError("one or more strings, whole numbers or booleans are expected")
        return values


class ArticleSettings(Group):
    """How an article is read, and the limits of inputs and outputs."""

    format: Literal[PlainFormat, "registry"] = Field(
        "json",
        description="`json`: a value is JSON; Confluent's prefix of 5 bytes before it is skipped. `registry`: a value is "
        "Avro, Protobuf or JSON, and names its schema by Confluent's prefix or header; `registry.url` says where "
        "schemas are. JSON without a schema is read as well.",
    )
    fields: Annotated[dict[str, str], AfterValidator(_fields)] = Field(
        default_factory=dict,
        description="Where the fields of an article are in the document: a JSON object of `id`, `title`, `body`, "
        "`language`, `source`, `url`, `published_at` and a JSON Pointer (RFC 6901) for each, e.g. "
        '`{"id": "/uuid", "title": "/headline", "body": "/content/text"}`. `id` may also be `key`, the record\'s key; all '
        "but `body` may be `header:NAME`. Lines of a file have neither, so such fields have their default pointer there, as "
        "those have that are not named: `/id`. An article without id or body there is a dead letter that names the pointer. "
        "In the pointer of `body`, one name may be `*`: `/blocks/*/text` is the `text` of all items of the list `blocks` "
        "that have one, joined with an empty line.",
    )
    metadata: Annotated[dict[str, str], AfterValidator(_metadata)] = Field(
        default_factory=dict,
        description="More of the document to repeat in the enriched record, under `metadata`: a JSON object of names and "
        'JSON Pointers, e.g. `{"section": "/desk/name"}`.',
    )
    transform: str | None = Field(
        None,
        min_length=1,
        description="Your own code, called before the fields are looked up: the name of an entry point "
        "`enricher.transforms` of an installed package, a pure function of the document and the headers that returns "
        "another document, or None for no output (deploy/transforms.md). `deleted` is about the document as it was "
        "published.",
    )
    deleted: DeleteEventMapping | None = Field(
        None,
        description="Which documents delete an article instead of being one, as change data capture publishes them: a "
        'JSON object of `field`, a JSON Pointer, and `values`, e.g. `{"field": "/payload/op", "values": ["d"]}`. The output '
        "is a tombstone with the record's key. For records without a key it is the id at the pointer `id`, by default "
        "where articles have it.",
    )
    body_format: Literal["text", "html", "auto"] = Field(
        "text",
        description="What a body is. `html`: the model reads the text without markup, offsets count in the HTML, and the "
        'record says `"body_format": "html"`. `auto`: each article is HTML or text by the rule of schemas/articles.md. Both '
        "need the extra `html`.",
    )
    scalar_ids: bool = Field(
        default=False,
        description="Accept whole numbers and booleans as ids, written as in JSON. Other numbers, and those beyond 64 bits, "
        "are refused: they are rounded when they are read, so two of them could become one id.",
    )

    wrong_optional: Literal["drop", "dead_letter"] = Field(
        "drop",
        description="What happens to an article with an optional field (`title`, `language`, `source`, `url`, "
        "`published_at`) of another type than text, or beyond its bound. `drop`: it is enriched without the field, which "
        "the record names in `dropped_fields`, and which is counted. A `published_at` may be a whole number: seconds since "
        "1970 below 100,000,000,000, else milliseconds; 0 counts as absent.",
    )
    max_value_bytes: int = Field(
        4_194_304,
        ge=1_000,
        description="Bytes of an input record's value; a larger one becomes a dead letter without being parsed, because "
        "hostile JSON takes 0.15 s per megabyte. Default: four times what a topic accepts by default, and the most that "
        "`max_article_chars` characters take in UTF-8.",
    )
    max_article_chars: int = Field(
        1_000_000, ge=1, description="Characters of title and body; a longer article becomes a dead letter."
    )
    max_article_tokens: int = Field(
        100_000,
        ge=1,
        description="Tokens of title and body. Of a longer article the beginning is enriched, up to the end of a word, and "
        "its record is marked as truncated.",
    )
    max_record_bytes: int = Field(
        1_000_000,
        ge=1_000,
        description="Bytes of an enriched record; a larger one becomes a dead letter. The topic's `max.message.bytes` "
        "counts if it is smaller and the worker may read it when it starts (DESCRIBE_CONFIGS).",
    )
    max_dead_letter_bytes: int = Field(
        16_000_000,
        ge=10_000,
        description="Bytes of a dead letter; a larger one leaves out its value. The topic's `max.message.bytes` counts "
        "if it is smaller and the worker may read it when it starts (DESCRIBE_CONFIGS).",
    )


class CatalogueSettings(Group):
    """The client's own list of names with ids, which entities are looked up in (deploy/catalogue.md)."""

    path: Path | None = Field(
        None,
        description="JSON lines with `id`, `name`, `aliases` and more, in a file, or in the files `*.jsonl` of a folder. A "
        "new version is taken while the worker runs. Default: no catalogue.",
    )
    labels: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        None, min_length=1, description="The labels whose entities are looked up. Default: all."
    )
    find: Literal["entities", "text"] = Field(
        "entities",
        description="What gets ids: `entities` of the model; `text`, also names that the model missed. These become "
        "entities with the label of their entry and `source: catalogue`.",
    )
    find_min_letters: int = Field(
        5,
        ge=3,
        le=100,
        description="The least number of letters and digits of a name that is found in the text with `find: text`.",
    )


class OutputSettings(Group):
    """The contents of an enriched record, and the format in which it is written."""

    article: Literal["none", "metadata", "whole"] = Field(
        "metadata",
        description="What a record repeats of its article besides the id: `none`; `metadata`, the fields `language`, "
        "`source`, `url`, `published_at` and those of `articles.metadata`; `whole`, also the whole document, under "
        "`article`: the original bytes if it is JSON.",
    )
    transform: str | None = Field(
        None,
        min_length=1,
        description="Your own code after the model: the name of an entry point `enricher.transforms` of an installed "
        "package, a pure function of the record that returns it with other entities, classes or metadata "
        "(deploy/transforms.md).",
    )
    version: bool = Field(
        default=False,
        description="Write the version of a record (the header `enricher.version`) also as its field `version`, for "
        "consumers that cannot read headers. In lines of a file it counts lines instead of offsets.",
    )
    skip_addresses: bool = Field(
        default=True,
        description="Leave out entities that are only a part of a URL or an e-mail address (https://www.berlin.de/merkel, "
        "merkel@paris.fr), or all of it. The name in a handle (@BorisJohnson) stays an entity.",
    )
    format: RecordFormat = Field(
        "json",
        description="`json` without a schema id; the others begin with Confluent's prefix and need a registry where "
        "`enricher schemas register` has registered our schema.",
    )
    subject: str | None = Field(
        None, min_length=1, description="Subject of the schema of records. Default: `OUTPUT_TOPIC-value`."
    )
