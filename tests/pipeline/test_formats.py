"""Articles in every form, mixed in one partition, through workers, a real broker and a real registry, and back.

Confluent's own serializers write them, and its deserializers read the records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands.cli_runner import run
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessages
from kafka.harness import Sent, assert_all_is_there_once, assert_exactly_once, headers_of, publish, published, worker
from support.bounded import binary
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.registry_proxy import RegistryProxy
from support.topics import Topics

from enricher.worker.contracts import record_descriptors

pytestmark = pytest.mark.broker

KEY, UNKNOWN_ID = b"one partition", 2**31 - 1
TITLE = "Zoë \N{ROCKET} in the rain"
BODY = "Angela Merkel met Emmanuel Macron \N{ROCKET} in São Paulo, and it rained all day on both of them. " * 3
NAMES = ("id", "title", "body")
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Article", "type": "object"}


def forms(url: str, topic: str) -> list[Sent]:
    """One text as plain JSON, and in each of Confluent's formats with its schema named in a prefix and in a header."""
    client = SchemaRegistryClient({"url": url})
    avro = {"type": "record", "name": "A", "doc": topic, "fields": [{"name": name, "type": "string"} for name in NAMES]}
    file = FileDescriptorProto(name="article.proto", syntax="proto3")
    fields = file.message_type.add(name="Article").field
    for number, name in enumerate(NAMES, 1):
        fields.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
    message = GetMessages([file])["Article"]
    kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
        "avro": lambda placed: AvroSerializer(client, json.dumps(avro), conf=placed),
        "json": lambda placed: JSONSerializer(json.dumps(JSON_SCHEMA), client, conf=placed),
        "protobuf": lambda placed: ProtobufSerializer(message, client, placed | {"use.deprecated.format": False}),
    }
    sent = [Sent(KEY, orjson.dumps({"id": "plain", "title": TITLE, "body": BODY}))]
    for kind, serializer in kinds.items():
        for place, placed in (("prefix", prefix_schema_id_serializer), ("header", header_schema_id_serializer)):
            article = {"id": f"{kind} {place}", "title": TITLE, "body": BODY}
            context = SerializationContext(f"{topic}.{kind}", MessageField.VALUE, headers={})
            given = ParseDict(article, message()) if kind == "protobuf" else article
            value = serializer({"schema.id.serializer": placed})(given, context)
            sent.append(Sent(KEY, value, binary([*dict(context.headers or {}).items()])))
    return sent


def environment_of(topics: Topics, url: str, folder: Path, output_format: str = "json") -> dict[str, str]:
    """A worker's that asks this registry."""
    return topics.environment | {
        "ENRICHER_ARTICLES__FORMAT": "registry",
        "ENRICHER_REGISTRY__URL": url,
        "ENRICHER_REGISTRY__CACHE_DIR": str(folder / "schemas"),
        "ENRICHER_REGISTRY__UNKNOWN_WAIT_S": "1",
        "ENRICHER_OUTPUT__FORMAT": output_format,
    }


def decoder(output_format: str, url: str, topic: str) -> Callable[[bytes], Any]:
    """Values to documents, by Confluent's deserializer, which finds the schema by the id in the prefix."""
    client, context = SchemaRegistryClient({"url": url}), SerializationContext(topic, MessageField.VALUE)
    if output_format == "json":
        return orjson.loads
    if output_format == "avro":
        return lambda value: AvroDeserializer(client)(value, context)
    if output_format == "json-schema":
        return lambda value: JSONDeserializer(None, schema_registry_client=client)(value, context)
    message = GetMessages(FileDescriptorSet.FromString(record_descriptors()).file)["enricher.v1.EnrichedRecord"]
    # Without a client: Apicurio answers damaged bytes to what it would ask for.
    read = ProtobufDeserializer(message, {"use.deprecated.format": False})
    return lambda value: MessageToDict(read(value, context), always_print_fields_with_no_presence=True)


@pytest.mark.parametrize("output_format", ["json", "avro", "protobuf", "json-schema"])
def test_articles_in_every_form_become_records_in_their_order(
    output_format: str, topics: Topics, registry_proxy: RegistryProxy, tmp_path: Path
) -> None:
    """Equal texts have equal entities; a tombstone passes, and an id that the registry lacks is a dead letter."""
    environment = environment_of(topics, registry_proxy.url, tmp_path, output_format)
    if output_format != "json":
        assert 0 == run("schemas", "register", env=environment).exit_code
    given = forms(registry_proxy.url, topics.input)
    unknown = Sent(KEY, b"\0" + UNKNOWN_ID.to_bytes(4, "big") + (given[1].value or b"")[5:])
    places = publish(topics.bootstrap_servers, topics.input, [*given, unknown, Sent(KEY, None), *given[::-1]])
    with worker(environment, "--until-caught-up", stub=True, log=tmp_path / "log") as process:
        assert 0 == process.wait(PATIENCE_S), (tmp_path / "log").read_text("utf-8")
    outputs, letters = (read_all(topics.bootstrap_servers, topic) for topic in (topics.output, topics.dead_letters))
    assert_exactly_once([*outputs, *letters], places)
    (reason,) = (headers_of(each)["enricher.dlq.error.message"] or b"" for each in letters)
    assert f"id {UNKNOWN_ID}" in reason.decode()
    tombstone = outputs.pop(len(given))
    assert tombstone.value() is None
    values = [message.value() or b"" for message in outputs]
    if output_format != "json":
        registered = SchemaRegistryClient({"url": registry_proxy.url}).get_latest_version(f"{topics.output}-value")
        assert {registered.schema_id} == {int.from_bytes(value[1:5], "big") for value in values}
    records = [*map(decoder(output_format, registry_proxy.url, topics.output), values)]
    ids = ["plain", *(f"{kind} {place}" for kind in ("avro", "json", "protobuf") for place in ("prefix", "header"))]
    assert [*ids, *ids[::-1]] == [record["id"] for record in records]
    for each in records[0]["entities"]:
        assert each["text"] == {"title": TITLE, "body": BODY}[each["field"]][each["start"] : each["end"]]
    assert all(records[0]["entities"] == record["entities"] != [] for record in records)
    assert 0 == run("verify", env=environment).exit_code


def test_without_its_registry_a_worker_knows_the_schemas_it_had(
    topics: Topics, registry_proxy: RegistryProxy, tmp_path: Path
) -> None:
    """They are on its disk; an article of another schema waits, is no dead letter, and goes on with the registry."""
    environment, log = environment_of(topics, registry_proxy.url, tmp_path), tmp_path / "log"
    known = forms(registry_proxy.url, topics.input)
    fresh = forms(registry_proxy.url, f"{topics.input}.fresh")[1]
    places = publish(topics.bootstrap_servers, topics.input, known)
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
    places |= publish(topics.bootstrap_servers, topics.input, [*known, fresh])
    with ExitStack() as outage:
        outage.enter_context(registry_proxy.down())
        with worker(environment, "--until-caught-up", stub=True, log=log) as process:
            wait_until(lambda: "no answer about schema" in log.read_text("utf-8"), PATIENCE_S, "it has asked in vain")
            wait_until(lambda: 2 * len(known) == published(topics), PATIENCE_S, "the others are enriched")
            assert process.poll() is None
            outage.close()
            assert 0 == process.wait(PATIENCE_S), log.read_text("utf-8")
    assert_all_is_there_once(topics, places)
