"""`scripts/registry publish`: lines of JSON written by a schema, and registered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands.cli_runner import article, json_lines, run
from support.reading import read_all
from support.schema_registry import Registry, serving
from typer.testing import CliRunner

from enricher.errors import BrokerError, FatalError, InvalidArticle, SettingsError
from enricher.worker.articles.envelope import read_frame
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import registry_client
from tools.registry.__main__ import app
from tools.registry.publishing import publish_lines, registered_encoder

if TYPE_CHECKING:
    from support.topics import Topics

AVSC = json.dumps({
    "type": "record",
    "name": "Article",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "title", "type": ["null", "string"], "default": None},
        {"name": "body", "type": "string"},
    ],
})  # fmt: skip
PROTO = 'syntax = "proto3"; package news; message Article { string id = 1; string title = 2; string body = 3; }'
SCHEMAS = {"article.avsc": AVSC, "article.proto": PROTO, "article.json": '{"type": "object"}'}


@pytest.fixture
def registry() -> Iterator[Registry]:
    """An empty registry."""
    with serving() as serves:
        yield serves


def client_of(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> RegistryClient:
    """A client of it."""
    monkeypatch.setenv("ENRICHER_REGISTRY__URL", registry.url)
    return registry_client(load_settings())


def schema_file(name: str, folder: Path) -> Path:
    """A schema of articles."""
    (folder / name).write_text(SCHEMAS[name])
    return folder / name


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_line_is_written_by_its_schema_behind_the_id(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """What the worker's decoder of that schema reads is the line."""
    client = client_of(registry, monkeypatch)
    encode = registered_encoder(schema_file(name, tmp_path), client, "articles-value")
    frame = read_frame(encode(json.dumps(article("a")).encode()), (), max_payload_bytes=10_000)
    assert frame is not None
    assert SchemaRef("id", "17") == frame.reference
    decode = compile_schema(client.schema(frame.reference))
    assert article("a") == decode(frame.payload)


@pytest.mark.parametrize(
    ("name", "line", "wrong"),
    [
        ("article.avsc", b'{"id": "a", "title": 4711, "body": "x"}', r"Article\.title is of type int"),
        ("article.avsc", b'{"id": "a"}', r"Article\.body is of type NoneType"),
        ("article.avsc", b"[4711]", "the line is of type list"),
        ("article.proto", b'{"id": "a", "title": 4711}', "title has another type"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_its_field(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, line: bytes, wrong: str
) -> None:
    """A first try should end with an error, not with a record that nobody can read; the value is not repeated."""
    client = client_of(registry, monkeypatch)
    encode = registered_encoder(schema_file(name, tmp_path), client, "articles-value")
    with pytest.raises(InvalidArticle, match=f"does not fit the schema in .*{name}: {wrong}$") as refused:
        encode(line)
    assert "4711" not in str(refused.value)


@pytest.mark.broker
def test_a_line_that_does_not_fit_is_named_by_its_place(
    registry: Registry, topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """File, line and field, for a wrong field as for a wrong id."""
    file = tmp_path / "articles.jsonl"
    for name, value in topics.environment.items():
        monkeypatch.setenv(name, value)
    client_of(registry, monkeypatch)
    for line, wrong in (
        ({"id": "b", "title": 1, "body": "x"}, r".*\.title is of type int"),
        ({"id": ""}, "id is empty"),
    ):
        file.write_text(json_lines(article("a"), line))
        with pytest.raises(FatalError, match=rf"articles\.jsonl, line 2: {wrong}"):
            publish_lines([file], schema_file("article.avsc", tmp_path))


@pytest.mark.parametrize(("suffix", "text"), [(".avsc", '{"type": "recordd"}'), (".proto", "message {")])
def test_a_schema_that_is_none_is_refused_and_not_registered(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str, text: str
) -> None:
    """The registry would keep it forever."""
    file = tmp_path / f"broken{suffix}"
    file.write_text(text)
    with pytest.raises(FatalError, match="broken"):
        registered_encoder(file, client_of(registry, monkeypatch), "articles-value")
    assert not registry.versions


def test_a_subject_of_another_type_is_refused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Readers would take the records for the other format: some registries even give the same id."""
    client = client_of(registry, monkeypatch)
    registered_encoder(schema_file("article.avsc", tmp_path), client, "articles-value")
    with pytest.raises(SettingsError, match="has schemas of type AVRO"):
        registered_encoder(schema_file("article.proto", tmp_path), client, "articles-value")


def test_a_registry_that_refuses_the_schema_is_told(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is published under a schema that is not there."""
    file = tmp_path / "incompatible.json"
    file.write_text('{"title": "incompatible"}')
    with pytest.raises(BrokerError, match="Nothing was published"):
        registered_encoder(file, client_of(registry, monkeypatch), "articles-value")


def test_a_file_that_is_no_schema_by_its_name_is_refused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The suffix says which format it is."""
    file = tmp_path / "article.txt"
    file.write_text(AVSC)
    with pytest.raises(SettingsError, match=r"none of \.avsc, \.proto, \.json"):
        registered_encoder(file, client_of(registry, monkeypatch), "articles-value")


def test_without_a_registry_nothing_is_sent_and_the_setting_is_named(tmp_path: Path) -> None:
    """Before the broker is asked."""
    file = tmp_path / "articles.jsonl"
    file.write_text(json_lines(article("a")))
    with pytest.raises(SettingsError, match=r"registry\.url is missing"):
        publish_lines([file], schema_file("article.avsc", tmp_path))


@pytest.mark.broker
@pytest.mark.usefixtures("shared_models")
def test_articles_are_published_in_avro_and_the_doctor_reads_them(
    registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    """The keys are the ids, as in JSON; the doctor reads the newest records."""
    file = tmp_path / "articles.jsonl"
    file.write_text(json_lines(article("a"), article("b")))
    environment = topics.environment | {
        "ENRICHER_REGISTRY__URL": registry.url,
        "ENRICHER_REGISTRY__CACHE_DIR": str(tmp_path / "cache"),
        "ENRICHER_ARTICLES__FORMAT": "registry",
    }
    schema = schema_file("article.avsc", tmp_path)
    result = CliRunner().invoke(app, ["publish", str(file), "--schema", str(schema)], env=environment)
    assert result.exit_code == 0, result.output
    assert {b"a", b"b"} == {message.key() for message in read_all(topics.bootstrap_servers, topics.input)}
    registry.schemas["17"] = {"schema": AVSC}
    report = json.loads(run("doctor", "--json", env=environment).stdout)
    checks = {check["check"]: check for check in report["checks"]}
    assert "ok" == checks["the newest articles"]["verdict"]
