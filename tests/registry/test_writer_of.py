"""`writer_of` and `check_record_schema`: settings to the writer of records and its schema id."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.schema_registry import Registry, serving, status

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.build.record_writer import check_record_schema, writer_of
from enricher.worker.contracts import record_schema
from enricher.worker.settings import OutputSettings, RegistrySettings, Settings


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry without schemas, on a port of this machine."""
    with serving() as registry:
        yield registry


def settings(registry: Registry, folder: Path, **output: str) -> Settings:
    """Settings of a worker that writes Avro."""
    return Settings(
        output=OutputSettings(format="avro", **output), registry=RegistrySettings(url=registry.url, cache_dir=folder)
    )


def register(registry: Registry, subject: str) -> None:
    """Let the subject have our schema."""
    registry.versions[subject, "1"] = {"subject": subject, "version": 1, "id": 7, "schema": record_schema("AVRO")}


def test_plain_json_asks_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not even load what would."""
    monkeypatch.setitem(sys.modules, "enricher.worker.build.schema_registry", None)
    writer, prepare = writer_of(Settings())
    prepare()
    assert (True, None) == (writer.ready, writer.schema)


@pytest.mark.parametrize(
    ("output", "name"),
    [({}, f"{Settings().kafka.output_topic}-value"), ({"subject": "s"}, "s")],
    ids=["default", "set"],
)
def test_the_id_is_asked_for_once(registry: Registry, tmp_path: Path, output: dict[str, str], name: str) -> None:
    """Under the subject of the settings; by default it is that of the output topic."""
    register(registry, name)
    writer, prepare = writer_of(settings(registry, tmp_path, **output))
    prepare()
    prepare()
    assert writer.ready
    assert [f"/subjects/{name}"] == [path for _, _, path in registry.requests]


def test_a_registry_that_is_away_is_asked_again(registry: Registry, tmp_path: Path) -> None:
    """Each attempt of the start calls it; the check before the model is loaded does not end the process."""
    chosen = settings(registry, tmp_path, subject="s")
    register(registry, "s")
    registry.behaviour = status(503)
    check_record_schema(chosen)
    writer, prepare = writer_of(chosen)
    with pytest.raises(TransactionTrouble):
        prepare()
    assert not writer.ready
    registry.behaviour = None
    prepare()
    assert writer.ready


def test_a_schema_that_is_not_registered_is_found_before_the_model_is_loaded(
    registry: Registry, tmp_path: Path
) -> None:
    """With the command that registers it."""
    with pytest.raises(BrokerError, match="enricher schemas register"):
        check_record_schema(settings(registry, tmp_path))
