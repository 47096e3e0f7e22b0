"""The doctor's checks of the schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from support.schema_registry import Behaviour, Registry, drip, hang_up, serving, status

from enricher.operate.doctor import registry as checks
from enricher.operate.doctor.findings import Finding, exit_code
from enricher.worker.articles import record_writer
from enricher.worker.build.record_writer import subject_of
from enricher.worker.records import Headers, Partition, RawRecord
from enricher.worker.settings import load_settings


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    """A registry that the settings name."""
    with serving() as serves:
        monkeypatch.setenv("ENRICHER_REGISTRY__URL", serves.url)
        monkeypatch.setenv("ENRICHER_REGISTRY__CACHE_DIR", str(tmp_path))
        monkeypatch.setenv("ENRICHER_REGISTRY__TIMEOUT_S", "1")
        yield serves


def found() -> Mapping[str, Finding]:
    """The findings by check."""
    return {finding.check: finding for finding in checks.registry_findings(load_settings())}


def records(values: Sequence[tuple[bytes, Headers]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these be the newest records of the input topic."""
    raw = [RawRecord(Partition("t", 0), offset, None, value, headers) for offset, (value, headers) in enumerate(values)]
    monkeypatch.setenv("ENRICHER_ARTICLES__FORMAT", "registry")
    monkeypatch.setattr(checks, "newest_records", lambda *_: iter(raw))


def test_without_a_registry_there_is_nothing_to_check() -> None:
    """Most workers read JSON."""
    assert {} == found()


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [hang_up, drip, status(500), status(404), status(302), status(200)])
def test_a_registry_that_does_not_answer_as_one_fails(registry: Registry, behaviour: Behaviour) -> None:
    """The worker would wait; its exit code is that of an absent broker."""
    registry.behaviour = behaviour
    findings = found()
    assert ["FAIL"] == [finding.verdict for finding in findings.values()]
    assert 4 == exit_code(list(findings.values()))


@pytest.mark.parametrize("code", [401, 403])
def test_wrong_credentials_are_named(registry: Registry, code: int) -> None:
    """The advice is another one than for an address."""
    registry.behaviour = status(code)
    assert "basic.auth.user.info" in found()["registry"].advice


@pytest.mark.parametrize(("registers", "verdict"), [("false", "FAIL"), ("true", "warn")])
def test_a_missing_schema_of_records_says_how_to_register_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, registers: str, verdict: str
) -> None:
    """Unless the worker registers it itself."""
    assert registry.url
    monkeypatch.setenv("ENRICHER_OUTPUT__FORMAT", "avro")
    monkeypatch.setenv("ENRICHER_REGISTRY__AUTO_REGISTER", registers)
    finding = found()["subject entities-value"]
    assert verdict == finding.verdict
    assert "register" in finding.advice


def test_the_registered_schema_of_records_is_found(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version and id."""
    monkeypatch.setenv("ENRICHER_OUTPUT__FORMAT", "avro")
    schema = record_writer("avro").schema
    assert schema is not None
    subject = subject_of(load_settings())
    registry.add(subject, schema.type, schema.text, 5)
    assert "has our Avro schema, version 1, id 5" == found()[f"subject {subject}"].seen


def test_the_schemas_of_the_newest_articles_are_named(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, the most frequent first."""
    registry.schemas["3"] = {"schema": '"string"'}
    records([(b"\0\0\0\0\3x", ()), (b"\0\0\0\0\3y", ()), (b"{}", ())], monkeypatch)
    assert "2 x Avro (id 3), 1 x JSON without a schema" == found()["schemas of the newest articles"].seen


@pytest.mark.parametrize("value", [b"\0\0\0\0\x63x", b"\0\0", b"\x07"])
def test_articles_that_cannot_be_read_are_a_warning(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    """An unknown id, half a prefix, and no frame at all."""
    assert registry.url
    records([(value, ())], monkeypatch)
    assert "warn" == found()["schemas of the newest articles"].verdict


def test_a_schema_of_glue_is_looked_for_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a registry."""
    uuid = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
    monkeypatch.setenv("ENRICHER_REGISTRY__GLUE_FOLDER", str(tmp_path))
    records([(b"\3\0" + bytes.fromhex(uuid.replace("-", "")) + b"x", ())], monkeypatch)
    check = "schemas of the newest articles"
    assert "warn" == found()[check].verdict
    (tmp_path / f"{uuid}.avsc").write_text('"string"')
    assert f"1 x Avro (glue {uuid})" == found()[check].seen


@pytest.mark.parametrize(("output_format", "advised"), [("avro", "FULL_TRANSITIVE"), ("json-schema", "FORWARD")])
def test_a_level_that_would_refuse_later_versions_is_a_warning(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, output_format: str, advised: str
) -> None:
    """Registries have BACKWARD unless told otherwise."""
    assert registry.url
    monkeypatch.setenv("ENRICHER_OUTPUT__FORMAT", output_format)
    finding = found()["compatibility of entities-value"]
    assert ("warn", True) == (finding.verdict, advised in finding.advice)
