"""The real registry: what it answers as Confluent's does, and that nothing of it stays."""

from __future__ import annotations

import json
import uuid

import httpx2
import psutil
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.patience import PATIENCE_S
from support.registry_proxy import RegistryProxy

from tools.registry import Registry

pytestmark = pytest.mark.broker

ARTICLE = json.dumps({"type": "record", "name": "Article", "fields": [{"name": "id", "type": "string"}]})


def fresh(name: str) -> str:
    """A subject that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:8]}-value"


@pytest.fixture
def client(registry: Registry) -> httpx2.Client:
    """Plain HTTP to the registry."""
    return httpx2.Client(base_url=registry.url, timeout=PATIENCE_S)


def test_an_unknown_id_has_the_error_code_of_its_own(client: httpx2.Client) -> None:
    """So it differs from a path that does not exist."""
    answer = client.get("/schemas/ids/999999")
    assert (404, 40403) == (answer.status_code, answer.json()["error_code"])
    unknown = client.get("/nowhere")
    assert (404, b"") == (unknown.status_code, unknown.content)


def test_the_proxy_adds_the_guids_that_serializers_write_into_headers(registry_proxy: RegistryProxy) -> None:
    """Apicurio has none; through the proxy, Confluent's own serializer and deserializer agree."""
    topic = fresh("guid").removesuffix("-value")
    client = SchemaRegistryClient({"url": registry_proxy.url})
    context = SerializationContext(topic, MessageField.VALUE, headers={})
    write = AvroSerializer(client, ARTICLE, conf={"schema.id.serializer": header_schema_id_serializer})
    payload = write({"id": "article"}, context)
    assert b"\x0earticle" == payload
    assert context.headers is not None
    name = dict(context.headers)["__value_schema_id"]
    assert isinstance(name, bytes)
    assert b"\x01" == name[:1]
    assert {"id": "article"} == AvroDeserializer(SchemaRegistryClient({"url": registry_proxy.url}))(payload, context)
    unknown = httpx2.get(f"{registry_proxy.url}/schemas/guids/{uuid.uuid4()}")
    assert (404, 40403) == (unknown.status_code, unknown.json()["error_code"])


def test_the_server_listens_on_loopback_only(registry: Registry) -> None:
    """The port of its management interface included."""
    connections = psutil.Process(registry.pid).net_connections(kind="tcp")
    addresses = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}
