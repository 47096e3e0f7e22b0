"""The real registry: what it answers as Confluent's does, and that nothing of it stays."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import httpx2
import psutil
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.patience import PATIENCE_S
from support.registry_proxy import RegistryProxy
from support.scripted import Script

from tools.kafka.keeper import end
from tools.ports import free_ports
from tools.registry import Registry, main

pytestmark = pytest.mark.broker

ARTICLE = json.dumps({"type": "record", "name": "Article", "fields": [{"name": "id", "type": "string"}]})


def fresh(name: str) -> str:
    """A subject that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:8]}-value"


def registered(client: httpx2.Client, subject: str, schema: str, **further: object) -> int:
    """Register a schema; returns its id."""
    response = client.post(f"/subjects/{subject}/versions", json={"schema": schema, **further})
    assert 200 == response.status_code, response.text
    return int(response.json()["id"])


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


def test_a_day_with_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Start, start again, status, stop, start, stop, stop again, status: each works.

    Schemas and their ids outlive the server, which `stop` kills: records in topics that are kept still name a schema.
    """
    script = Script("tools.registry", main, tmp_path, monkeypatch, capfd)
    port = str(free_ports(1)[0])
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    export = f"export ENRICHER_REGISTRY__URL={url}\n"
    try:
        first = script.process("start", "--port", port)
        assert (0, export) == (first.code, first.out)
        assert export == script("start").out
        assert 0 == script("status").code
        taken = script("start", "--port", "1")
        assert 1 == taken.code
        assert "scripts/registry stop" in taken.err
        with httpx2.Client(base_url=url, timeout=PATIENCE_S) as client:
            number = registered(client, "kept-value", ARTICLE)
        assert 0 == script.process("stop").code
        assert 0 == script("start", "--port", port).code
        kept = httpx2.get(f"{url}/schemas/ids/{number}", timeout=PATIENCE_S).json()
        assert json.loads(ARTICLE) == json.loads(kept["schema"])
        assert 0 == script("stop", "--erase").code
        assert not list(tmp_path.glob("schemas*"))
        assert "nothing to do" in script("stop").err
        assert 3 == script("status").code
    finally:
        end(tmp_path.resolve())
