"""`RecordSchema`: how the worker finds the id of its own schema at the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.schema_registry import Registry, serving, status

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.articles.schemas import Schema
from enricher.worker.registry.record_schema import RecordSchema
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.store import SchemaStore

SCHEMA = Schema("AVRO", '"ours"')


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry without schemas, on a port of this machine."""
    with serving() as registry:
        yield registry


def register(registry: Registry, schema_id: int, schema: Schema = SCHEMA) -> None:
    """Let the subject have this schema."""
    registry.add("s", schema.type, schema.text, schema_id)


def of_records(registry: Registry, folder: Path) -> RecordSchema:
    """The schema of records of a worker that keeps ids in this folder."""
    client = RegistryClient(registry.url, {}, timeout_s=5.0, max_schema_bytes=10_000)
    return RecordSchema("s", SCHEMA, client, SchemaStore(folder, registry.url))


def posted(registry: Registry) -> list[str]:
    """The paths to which something was sent."""
    return [path for _, method, path in registry.requests if method == "POST"]


def test_a_registered_schema_has_the_id_of_the_registry(registry: Registry, tmp_path: Path) -> None:
    """Nothing is registered."""
    register(registry, 7)
    assert 7 == of_records(registry, tmp_path).find_id()
    assert ["/subjects/s"] == posted(registry)


def test_without_the_registry_it_is_tried_again(registry: Registry, tmp_path: Path) -> None:
    """As for a broker that is away: the error is one after which the start is repeated, and then it succeeds."""
    register(registry, 7)
    registry.behaviour = status(503)
    schema = of_records(registry, tmp_path)
    with pytest.raises(TransactionTrouble, match=r"subject s, .*HTTP 503"):
        schema.find_id()
    registry.behaviour = None
    assert 7 == schema.find_id()


def test_while_the_registry_is_away_the_id_on_disk_counts(registry: Registry, tmp_path: Path) -> None:
    """A restarted worker goes on. An answer of the registry counts more than the disk."""
    register(registry, 42)
    assert 42 == of_records(registry, tmp_path).find_id()
    registry.behaviour = status(503)
    assert 42 == of_records(registry, tmp_path).find_id()
    registry.behaviour = None
    registry.versions.clear()
    with pytest.raises(BrokerError):
        of_records(registry, tmp_path).find_id()


def test_a_schema_that_is_not_registered_ends_the_worker_and_says_what_to_do(
    registry: Registry, tmp_path: Path
) -> None:
    """Another schema of the subject is another schema; nothing is registered."""
    register(registry, 3, Schema("AVRO", '"string"'))
    with pytest.raises(BrokerError, match=r"AVRO.*'s'.*enricher schemas register") as error:
        of_records(registry, tmp_path).find_id()
    assert 4 == error.value.exit_code
    assert ["/subjects/s"] == posted(registry)
