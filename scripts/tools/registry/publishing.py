"""`scripts/registry publish`: lines of JSON written by a schema and published, for a first try of a pipeline.

Registers the schema, and prefixes each value with its id, as Confluent's serializers do.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import orjson
from fastavro.validation import ValidationError, validate
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass

from enricher.errors import BrokerError, FatalError, InvalidArticle, SettingsError
from enricher.operate.publish import Publisher, key_of, lines_in, place_of, require_files
from enricher.worker.articles.envelope import FIRST_MESSAGE, id_prefix
from enricher.worker.articles.formats.protobuf_schema import load_files
from enricher.worker.articles.schemas import Schema, SchemaRef
from enricher.worker.registry.registry_client import RegistryError, UnknownToRegistry
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import line_mapping, registry_client
from enricher.worker.wiring.kafka_clients import kafka_config

if TYPE_CHECKING:
    from enricher.worker.contracts import SchemaType
    from enricher.worker.registry.registry_client import RegistryClient

Encode = Callable[[bytes], bytes]
"""A line of JSON to the value to publish. Raises InvalidArticle, with the field, if it does not fit the schema."""

_TYPES: dict[str, SchemaType] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_DRAIN_STEP_S = 0.5


def publish_lines(files: Sequence[Path], schema_file: Path) -> int:
    """Publish every line of the files to the input topic of the settings; returns how many. Raises FatalError."""
    settings = load_settings()
    client = registry_client(settings)
    mapping, config = line_mapping(settings), kafka_config(settings)
    require_files(files)
    publisher = Publisher(config, config.input_topic)
    encode = registered_encoder(schema_file, client, f"{config.input_topic}-value")
    try:
        for line in lines_in(files):
            try:
                publisher.send(key_of(line.value, mapping), encode(line.value))
            except InvalidArticle as error:
                raise FatalError(f"{place_of(line)}: {error}. The lines before it were published") from error
    finally:
        while publisher.drain(_DRAIN_STEP_S):
            pass
    if failures := publisher.failures:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in failures.most_common(3))
        raise BrokerError(f"{failures.total()} articles were not published to '{config.input_topic}': {reasons}")
    return publisher.delivered


def registered_encoder(file: Path, client: RegistryClient, subject: str) -> Encode:
    """Register the schema in `file` under `subject`, and return what writes by it.

    Raises SettingsError, BrokerError if the registry refuses it or does not answer, FatalError if it cannot be used.
    """
    if file.suffix not in _TYPES:
        raise SettingsError(f"--schema: {file} is none of {', '.join(_TYPES)}")
    schema = Schema(_TYPES[file.suffix], _text(file))
    try:
        write = _WRITERS[schema.type](schema)
    except (InvalidArticle, OSError) as error:
        raise FatalError(f"{file}: {error}") from error
    try:
        prefix = id_prefix(_registered_id(schema, client, subject))
    except RegistryError as error:
        raise BrokerError(f"{file} was not registered under '{subject}': {error}. Nothing was published") from error

    def encode(line: bytes) -> bytes:
        try:
            return prefix + write(line)
        except InvalidArticle as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  what the libraries raise is not listed anywhere
            reason = type(error).__name__  # the message may contain the article
        raise InvalidArticle(f"it does not fit the schema in {file}: {reason}")

    return encode


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"--schema: {file} cannot be read: {reason}") from None


def _registered_id(schema: Schema, client: RegistryClient, subject: str) -> int:
    """The schema's id. Refuses what readers would take for another format: some registries give ids by the text alone."""
    newest = client.latest(subject)
    if newest and newest.type != schema.type:
        message = (
            f"the subject '{subject}' has schemas of type {newest.type}, not {schema.type}: use another input topic"
        )
        raise SettingsError(message)
    schema_id = client.register(subject, schema)
    try:
        found = client.schema(SchemaRef("id", str(schema_id)))
    except UnknownToRegistry:  # a follower that lags behind
        return schema_id
    if found.type != schema.type:
        message = f"under its id {schema_id} the registry has a schema of type {found.type}. Nothing was published"
        raise BrokerError(message)
    return schema_id


def _avro(schema: Schema) -> Encode:
    try:
        parsed = fastavro.parse_schema(orjson.loads(schema.text))
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise InvalidArticle(f"this is no Avro schema: {type(error).__name__}: {error}") from error

    def write(line: bytes) -> bytes:
        written, document = io.BytesIO(), orjson.loads(line)
        try:
            fastavro.schemaless_writer(written, parsed, document)
        except (TypeError, ValueError):
            _name_wrong_field(document, parsed)
            raise
        return written.getvalue()

    return write


def _name_wrong_field(document: Any, schema: Any) -> None:  # noqa: ANN401  JSON, and what fastavro made of a schema
    """Raise InvalidArticle with the field that does not fit; the writer's message has its value, but not always its name."""
    try:
        validate(document, schema)
    except ValidationError as error:
        wrong = error.errors[0]
        raise InvalidArticle(f"{wrong.field or 'the line'} is of type {type(wrong.datum).__name__}") from None


def _protobuf(schema: Schema) -> Encode:
    pool, file, _ = load_files(schema)
    if not file.message_type:
        raise InvalidArticle("this Protobuf file has no message")
    full_name = ".".join(filter(None, (file.package, file.message_type[0].name)))
    message_class: Any = GetMessageClass(pool.FindMessageTypeByName(full_name))

    def write(line: bytes) -> bytes:
        try:
            message = ParseDict(orjson.loads(line), message_class(), ignore_unknown_fields=True)
        except ParseError as error:
            # The rest of the message may contain the value.
            field = ".".join(re.findall(r"Failed to parse (\S+) field", str(error)))
            raise InvalidArticle(f"{field or 'some field'} has another type") from None
        written: bytes = message.SerializeToString()
        return FIRST_MESSAGE + written

    return write


def _json(schema: Schema) -> Encode:
    orjson.loads(schema.text)

    def write(line: bytes) -> bytes:
        orjson.loads(line)
        return line

    return write


_WRITERS: dict[SchemaType, Callable[[Schema], Encode]] = {"AVRO": _avro, "PROTOBUF": _protobuf, "JSON": _json}
