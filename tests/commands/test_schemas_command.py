"""`enricher schemas register`: what is registered, what a dry run says, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands.cli_runner import run
from support.schema_registry import Judge, Registry, serving, status
from typer.testing import Result

from enricher.errors import BrokerError, SettingsError
from enricher.worker.contracts import SchemaType, record_schema
from enricher.worker.registry.store import recommended_level

FORMATS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}


@pytest.fixture
def fake() -> Iterator[Registry]:
    """An empty registry."""
    with serving() as found:
        yield found


def refuses(reason: str, *levels: str) -> Judge:
    """A registry that refuses every other schema at these levels."""
    return lambda old, new, level: [reason] * (old not in {"", new} and level in levels)


def register(fake: Registry, output_format: str, *options: str, **settings: str) -> Result:
    """Run `enricher schemas register` with this registry and the output topic `entities`."""
    environment = {"ENRICHER_REGISTRY__URL": fake.url, "ENRICHER_KAFKA__OUTPUT_TOPIC": "entities"}
    return run("schemas", "register", *options, env=environment | {"ENRICHER_OUTPUT__FORMAT": output_format} | settings)


@pytest.mark.parametrize(("output_format", "schema_type"), FORMATS.items())
def test_register_registers_once_and_then_shows_what_is_there(
    fake: Registry, output_format: str, schema_type: SchemaType
) -> None:
    """The subject belongs to the output topic, the id stays, and nothing else is set."""
    first, again = register(fake, output_format), register(fake, output_format)
    assert (0, 0) == (first.exit_code, again.exit_code), first.output + again.output
    found = fake.versions["entities-value", "latest"]
    assert (schema_type, record_schema(schema_type)) == (found["schemaType"], found["schema"])
    assert [("POST", "/subjects/entities-value/versions")] == fake.changes
    assert "before         no such subject" in first.stdout
    assert "compatibility  BACKWARD (readers with the new schema can read" in first.stdout
    assert "result         registered: version 1, id 17" in first.stdout
    assert "result         unchanged: version 1, id 17" in again.stdout


def test_a_dry_run_shows_everything_and_changes_nothing(fake: Registry) -> None:
    """The schema, the subject and the verdict."""
    done = register(fake, "avro", "--dry-run", ENRICHER_OUTPUT__SUBJECT="mine")
    assert 0 == done.exit_code, done.output
    assert record_schema("AVRO") in done.stdout
    assert "subject        mine" in done.stdout
    assert "would register" in done.stdout
    assert [] == fake.changes


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_schema_that_the_registry_refuses_is_not_registered(fake: Registry, dry_run: list[str]) -> None:
    """Exit code 11; asked to register it, the registry gives its reason."""
    fake.add("entities-value", "AVRO", '"string"')
    fake.judge = refuses("/fields/id: it has another type", "BACKWARD")
    before = dict(fake.versions)
    done = register(fake, "avro", *dry_run)
    assert 11 == done.exit_code, done.output
    assert "result         refused" in done.stdout
    assert "asked to register" in done.stdout if dry_run else "incompatible with an earlier one" in done.stdout
    assert before == fake.versions


def test_the_trap_is_seen_and_the_advice_helps(fake: Registry) -> None:
    """At BACKWARD, the default of most registries, one refuses one more optional field; at the level that we advise none."""
    fake.add("entities-value", "JSON", "{}")
    fake.judge = refuses("/properties/url: only the new schema knows it", "BACKWARD")
    refused = register(fake, "json-schema")
    fake.levels["entities-value"] = recommended_level("JSON")
    shown, done = register(fake, "json-schema", "--dry-run"), register(fake, "json-schema")
    assert (11, 0, 0) == (refused.exit_code, shown.exit_code, done.exit_code)
    advice = f"that needs {recommended_level('JSON')}"
    assert [True, False] == [advice in each.stdout for each in (refused, done)]
    assert "before         its newest version is 1" in done.stdout
    assert "registered: version 2" in done.stdout


@pytest.mark.parametrize(
    ("output_format", "said"),
    [("json", "output.format"), ("protobuf", "of type AVRO, and this one is PROTOBUF")],
    ids=["plain JSON names no schema", "a subject of another format"],
)
def test_what_cannot_be_registered_is_refused(fake: Registry, output_format: str, said: str) -> None:
    """Nothing is registered."""
    fake.add("entities-value", "AVRO", '"string"')
    done = register(fake, output_format)
    assert isinstance(done.exception, SettingsError)
    assert said in str(done.exception)
    assert [] == fake.changes


def test_a_registry_that_fails_ends_the_command_with_code_4(fake: Registry) -> None:
    """A command does not wait for a registry; a worker does."""
    fake.behaviour = status(503)
    done = register(fake, "avro")
    assert isinstance(done.exception, BrokerError)
    assert 4 == done.exception.exit_code
    assert "503" in str(done.exception)


def test_no_command_compiles_a_schema_that_the_registry_has(
    fake: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `grpc_tools` in the working folder is not run, and neither is the compiler on a text that the registry returns."""
    (tmp_path / "grpc_tools").mkdir()
    for name in ("__init__.py", "protoc.py"):
        (tmp_path / "grpc_tools" / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    fake.add("entities-value", "PROTOBUF", 'syntax = "proto3"; import "/etc/passwd"; message M {}')
    fake.judge = lambda *_: ["it breaks"]
    fake.says_why = False
    assert 11 == register(fake, "protobuf", "--dry-run").exit_code
    assert not (tmp_path / "ran").exists()
