"""Reads Avro. fastavro parses and checks schemas; the payloads are read by functions of our own (`avro_readers`).

fastavro's reader cannot be bounded: an array of 2^63 nulls takes ten bytes and all memory, its C code does not look at its
stack and crashes at some 2,000 levels, and a decimal of 4 MB takes minutes. Refusing such types would not help: it counts no
values, so 4 MB of records in records take 4 GB and 28 s, and an array of records with one optional field, as honest schemas
have, takes 0.8 GB. For an article of strings it also takes twice as long; for one of nested records it is faster.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.formats.avro_primitives import Reader
from enricher.worker.articles.formats.avro_readers import Readers
from enricher.worker.articles.formats.avro_schema import AvroSchema, essential
from enricher.worker.articles.formats.limits import Budget, unreadable, unusable
from enricher.worker.articles.schemas import Decoder, Document, Schema

_NAME = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_.]*\s*")


def compile_avro(schema: Schema, *, glue: bool = False) -> Decoder:
    """The decoder of a schema whose top level is a record. Raises InvalidArticle if the schema cannot be used."""
    del glue  # payloads are the same
    from fastavro import parse_schema  # noqa: PLC0415  only for those who read Avro

    named: dict[str, Any] = {}
    parsed: AvroSchema = None
    try:
        for text in [*(reference.text for reference in schema.references), schema.text]:
            parsed = parse_schema(essential(_json(text)), named)
    except InvalidArticle:
        raise
    except Exception as error:  # noqa: BLE001  it documents none, and foreign schemas find many
        raise unusable("Avro", error if str(error) else type(error).__name__) from None
    if isinstance(parsed, str):
        parsed = named.get(parsed)
    if not isinstance(parsed, dict) or parsed["type"] != "record":
        raise unusable("Avro", "its top level is not a record")
    return _decoder(Readers(named).reader(parsed))


def _json(text: str) -> AvroSchema:
    """The schema's JSON; a bare name is one too, as registries have it."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if _NAME.fullmatch(text):
            return text.strip()
        raise unusable("Avro", f"it is not JSON: {error.msg} (character {error.pos})") from None


def _decoder(read: Reader) -> Decoder:
    def decode(payload: bytes) -> Document:
        try:
            document, end = read(payload, 0, Budget(len(payload)))
        except (IndexError, struct.error):
            raise unreadable("Avro", "it ends too early") from None
        except UnicodeDecodeError:
            raise unreadable("Avro", "a string is not UTF-8") from None
        except RecursionError:
            raise unreadable("Avro", "it is nested too deeply") from None
        if end != len(payload):
            raise unreadable("Avro", f"{len(payload) - end} bytes follow it")
        return document

    return decode
