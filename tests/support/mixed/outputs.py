"""Reads the records back, by Confluent's own deserializers where they name a schema, and compares each with its input."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from support.mixed.forms import compiled
from support.mixed.inputs import Input, Place
from tools import ROOT
from tools.reading import STAGE, Reader, headers_of, source_of
from tools.topics import Topics as Names

OutputFormat = Literal["json", "avro", "protobuf", "json-schema"]
_SHOWN = 5
_DESCRIBED = ("id", "language", "source", "url", "published_at", "metadata", "body_separator")


@dataclass(slots=True)
class Findings:
    """Counts, and the first few examples of each violation."""

    inputs: int = 0
    records: int = 0
    entities: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, what: str, example: object) -> None:
        """Count a violation."""
        self.counts[what] += 1
        if len(self.examples.setdefault(what, [])) < _SHOWN:
            self.examples[what].append(str(example))

    def __str__(self) -> str:
        wrong = ", ".join(f"{count} {what}" for what, count in self.counts.items()) or "nothing wrong"
        return f"{self.inputs} inputs in {len(self.forms)} forms, {self.records} records, {self.entities} entities; {wrong}"


def check(
    names: Names,
    places: Mapping[Place, Input],
    output_format: OutputFormat = "json",
    registry_url: str = "",
) -> Findings:
    """Compare every record with its input: once, right id and metadata, entities where their offsets say."""
    findings = Findings(inputs=len(places), forms=Counter(each.form for each in places.values()))
    reader = Reader(names.bootstrap_servers, names.group)
    decode = _decoder(output_format, registry_url, names.output)
    seen: Counter[Place] = Counter()
    entities: dict[tuple[str, int], tuple[Any, str]] = {}
    for message in reader.records(names.output):
        origin = source_of(message)
        place = Place(origin.partition, origin.offset)
        seen[place] += 1
        findings.records += 1
        if (each := places.get(place)) is None:
            findings.note("invented", place)
            continue
        record = decode(message)
        check_record(findings, record, each)
        found = [tuple(entity[name] for name in ("field", "start", "end", "label")) for entity in record["entities"]]
        findings.entities += len(found)
        first, form = entities.setdefault((each.layout.name, each.text_number), (found, each.form))
        if found != first:
            findings.note("with other entities than in another form", f"{each.form} and {form}")
    _check_dead_letters(findings, reader, names, places)
    for place, each in places.items():
        if seen[place] != 1:
            findings.note("doubled" if seen[place] else "lost", f"{each.layout.name}, {each.form} at {place}")
    return findings


def check_record(findings: Findings, record: Mapping[str, Any], each: Input) -> None:
    """Ids, metadata, and that the text of each entity is what the offsets cut out of the article."""
    described = {name: record[name] for name in _DESCRIBED if record.get(name) not in (None, {})}
    if described != each.wanted:
        findings.note("with other fields", f"{each.layout.name}, {each.form}: {described} instead of {each.wanted}")
    for entity in record["entities"]:
        if each.field(entity["field"])[entity["start"] : entity["end"]] != entity["text"]:
            findings.note("with entities elsewhere", f"{each.layout.name}, {each.form}: {entity}")


def _check_dead_letters(findings: Findings, reader: Reader, names: Names, places: Mapping[Place, Input]) -> None:
    for message in reader.records(names.dead_letters):
        origin = source_of(message)
        each = places.get(Place(origin.partition, origin.offset))
        headers = headers_of(message)
        reason = f"{headers[STAGE].decode()}: {headers.get('enricher.dlq.error.message', b'').decode()}"
        findings.note("dead letters", f"{each.layout.name}, {each.form}: {reason}" if each else f"{origin}: {reason}")


def _decoder(output_format: OutputFormat, registry_url: str, topic: str) -> Callable[[Message], Any]:
    """Values to documents, as the JSON record has them."""
    if output_format == "json":
        return lambda message: json.loads(message.value() or b"")
    client = SchemaRegistryClient({"url": registry_url})
    context = SerializationContext(topic, MessageField.VALUE)
    read: Any
    if output_format == "json-schema":
        schema = (ROOT / "schemas" / "enriched-record.v1.schema.json").read_text("utf-8")
        read = JSONDeserializer(schema, schema_registry_client=client)
        return lambda message: read(message.value(), context)
    if output_format == "avro":
        read = AvroDeserializer(client)
        return lambda message: _unpacked(read(message.value(), context))
    file = ROOT / "schemas" / "enriched-record.v1.proto"
    made = compiled({file.name: file.read_text("utf-8")}, file.name)
    name = next(iter(made.messages))
    # Without a client: with one it asks for the schema by `format=serialized`, which Apicurio answers with damaged bytes.
    read = ProtobufDeserializer(made.messages[name], {"use.deprecated.format": False})
    return lambda message: _unpacked(
        json_format.MessageToDict(
            read(message.value(), context), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    )


def _unpacked(record: dict[str, Any]) -> dict[str, Any]:
    """Avro and Protobuf have the values of `metadata` as JSON text."""
    metadata = record.get("metadata")
    return {**record, "metadata": {name: json.loads(text) for name, text in metadata.items()}} if metadata else record
