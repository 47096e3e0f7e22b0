"""`enricher schemas register`: what is registered, what a dry run says, and what is refused."""

from __future__ import annotations

import json
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


def with_registry(fake: Registry, *arguments: str) -> Result:
    """Run `enricher schemas` with this registry and the output topic `entities`."""
    environment = {"ENRICHER_REGISTRY__URL": fake.url, "ENRICHER_KAFKA__OUTPUT_TOPIC": "entities"}
    return run("schemas", *arguments, env=environment)


@pytest.mark.parametrize(("output_format", "schema_type"), FORMATS.items())
def test_register_registers_once_and_then_shows_what_is_there(
    fake: Registry, output_format: str, schema_type: SchemaType
) -> None:
    """The subject belongs to the output topic, the id stays, and nothing else is set."""
    first = with_registry(fake, "register", "--format", output_format, "--json")
    again = with_registry(fake, "register", "--format", output_format, "--json")
    assert (0, 0) == (first.exit_code, again.exit_code), first.output + again.output
    found = fake.versions["entities-value", "latest"]
    assert (schema_type, record_schema(schema_type)) == (found["schemaType"], found["schema"])
    assert [("POST", "/subjects/entities-value/versions")] == fake.changes
    one, two = json.loads(first.stdout), json.loads(again.stdout)
    assert ("registered", "unchanged") == (one["action"], two["action"])
    assert (1, 17, 1, 17) == (one["version"], one["id"], two["version"], two["id"])
    assert one["newest_version_before"] is None
    assert "BACKWARD" == one["compatibility"] == one["compatibility_before"]


def test_register_sets_the_compatibility_only_if_asked(fake: Registry) -> None:
    """Before the schema is registered, so that it is judged by it; and the output says what it means."""
    done = with_registry(fake, "register", "--format", "json-schema", "--compatibility", "FORWARD_TRANSITIVE")
    assert 0 == done.exit_code, done.output
    assert [("PUT", "/config/entities-value"), ("POST", "/subjects/entities-value/versions")] == fake.changes
    assert (
        "now FORWARD_TRANSITIVE (readers with the old schema can read what is written with the new one), was BACKWARD"
        in (done.stdout)
    )
    assert "registered: version 1, id 17" in done.stdout
    assert "Later versions" not in done.stdout


def test_register_says_which_compatibility_later_versions_need(fake: Registry) -> None:
    """The default of most registries is the wrong one for a JSON Schema."""
    done = with_registry(fake, "register", "--format", "json-schema")
    assert "--compatibility FORWARD_TRANSITIVE" in done.stdout


@pytest.mark.parametrize("level", [[], ["--compatibility", "FULL"]])
def test_a_dry_run_shows_everything_and_changes_nothing(fake: Registry, level: list[str]) -> None:
    """The schema, the subject and the verdict."""
    done = with_registry(fake, "register", "--format", "avro", "--subject", "mine", "--dry-run", *level)
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
    done = with_registry(fake, "register", "--format", "avro", "--json", *dry_run)
    assert 11 == done.exit_code, done.output
    assert "refused" == json.loads(done.stdout)["action"]
    assert "asked to register" in done.stdout if dry_run else "incompatible with an earlier one" in done.stdout
    assert before == fake.versions


def test_the_trap_is_seen_and_the_advice_helps(fake: Registry) -> None:
    """At BACKWARD a registry refuses one more optional field; at the level that we advise it accepts it."""
    fake.add("entities-value", "JSON", "{}")
    fake.judge = refuses("/properties/url: only the new schema knows it", "BACKWARD")
    refused = with_registry(fake, "register", "--format", "json-schema")
    advised = recommended_level("JSON")
    shown = with_registry(fake, "register", "--format", "json-schema", "--dry-run", "--compatibility", advised)
    done = with_registry(fake, "register", "--format", "json-schema", "--compatibility", advised, "--json")
    assert (11, 0, 0) == (refused.exit_code, shown.exit_code, done.exit_code)
    assert "result         would try to register" in shown.stdout
    assert f"so {advised} is not tried" in shown.stdout
    assert "incompatible with an earlier one" in refused.stdout
    assert f"--compatibility {advised}" in refused.stdout
    assert f"would become {advised}" in shown.stdout
    assert {"action": "registered", "version": 2, "newest_version_before": 1}.items() <= json.loads(done.stdout).items()


def test_register_needs_a_format_with_a_schema(fake: Registry) -> None:
    """Plain JSON names no schema."""
    done = with_registry(fake, "register")
    assert isinstance(done.exception, SettingsError)
    assert "--format" in str(done.exception)


@pytest.mark.parametrize("number", [401, 500, 503])
def test_a_registry_that_fails_ends_the_command_with_code_4(fake: Registry, number: int) -> None:
    """A command does not wait for a registry; a worker does."""
    fake.behaviour = status(number)
    done = with_registry(fake, "register", "--format", "avro")
    assert isinstance(done.exception, BrokerError)
    assert 4 == done.exception.exit_code
    assert str(number) in str(done.exception)


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
    for options in ([], ["--compatibility", "FULL"]):
        done = with_registry(fake, "register", "--dry-run", *options, "--format", "protobuf")
        assert done.exit_code in {0, 11}, done.output
    assert not (tmp_path / "ran").exists()
