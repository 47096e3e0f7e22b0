"""A real registry (Apicurio's) judges our changes as we say, at the level that we recommend and at its usual default."""

from __future__ import annotations

import json
import uuid

import pytest
from commands.cli_runner import run
from confluent_kafka.schema_registry import SchemaRegistryClient
from support.schema_changes import FILES, Change, all_changes, changes, contract

from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import SchemaType, record_schema
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.store import recommended_level
from tools.registry import Registry

FORMATS = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json-schema"}
TIMEOUT_S = 30

pytestmark = pytest.mark.broker


def urls_of(registry: Registry) -> str:
    """Its URL three times: Apicurio was seen to register a schema and not to answer, and all requests may be repeated."""
    return ",".join([registry.url] * 3)


def client_of(registry: Registry) -> RegistryClient:
    """A client of our own."""
    return RegistryClient(urls_of(registry), {}, timeout_s=TIMEOUT_S, max_schema_bytes=1_000_000)


def set_level(registry: Registry, subject: str, level: str) -> None:
    """Set the compatibility of a subject, which need not exist, as its owner does."""
    SchemaRegistryClient({"url": urls_of(registry)}).set_compatibility(subject, level)


def as_registered(schema_type: SchemaType, text: str) -> Schema:
    """A schema of records in the form that we register: a JSON Schema as draft 7, without its URN."""
    if schema_type == "JSON":
        schema = json.loads(text)
        del schema["$id"]
        text = json.dumps(schema | {"$schema": json.loads(record_schema("JSON"))["$schema"]})
    return Schema(schema_type, text)


@pytest.mark.parametrize("change", all_changes(), ids=str)
def test_a_registry_at_our_level_tells_allowed_changes_from_breaking_ones(registry: Registry, change: Change) -> None:
    """The promise can be kept in every format: the same verdict as offline, on each of the twelve changes."""
    client, subject = client_of(registry), f"changes-{uuid.uuid4().hex}"
    set_level(registry, subject, recommended_level(change.schema_type))
    client.register(subject, as_registered(change.schema_type, contract(change.schema_type)))
    assert change.allowed is client.is_compatible(subject, as_registered(change.schema_type, change.text))


@pytest.mark.parametrize("level", ["BACKWARD", "FULL"])
def test_a_registry_refuses_a_new_optional_property_at_other_levels(registry: Registry, level: str) -> None:
    """The trap is real: what README and `enricher schemas register` warn of happens."""
    client, subject = client_of(registry), f"trap-{uuid.uuid4().hex}"
    set_level(registry, subject, level)
    client.register(subject, as_registered("JSON", contract("JSON")))
    assert not client.is_compatible(subject, as_registered("JSON", changes("JSON")[0].text))


@pytest.mark.parametrize("schema_type", FILES)
def test_the_command_works_with_a_real_registry(registry: Registry, schema_type: SchemaType) -> None:
    """Dry run, register, register again, and a dry run against a subject that an incompatible schema is in."""
    subject, other = f"commands-{uuid.uuid4().hex}", f"other-{uuid.uuid4().hex}"
    environment = {
        "ENRICHER_REGISTRY__URL": urls_of(registry),
        "ENRICHER_OUTPUT__FORMAT": FORMATS[schema_type],
        "ENRICHER_OUTPUT__SUBJECT": subject,
    }
    set_level(registry, subject, recommended_level(schema_type))
    for options, result in (
        (("--dry-run",), "would register"),
        ((), "registered: version"),
        ((), "unchanged: version"),
    ):
        done = run("schemas", "register", *options, env=environment)
        assert 0 == done.exit_code, done.output
        assert f"result         {result}" in done.stdout

    breaking = next(each for each in changes(schema_type) if each.name == "another type")
    set_level(registry, other, recommended_level(schema_type))
    client_of(registry).register(other, as_registered(schema_type, breaking.text))
    refused = run("schemas", "register", "--dry-run", env=environment | {"ENRICHER_OUTPUT__SUBJECT": other})
    assert 11 == refused.exit_code, refused.output
    assert "result         refused" in refused.stdout
