"""The doctor's checks of the schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.schema_registry import Behaviour, Registry, hang_up, serving, status

from enricher.operate.doctor import broker as checks
from enricher.operate.doctor.findings import Finding, exit_code
from enricher.worker.articles import record_writer
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import subject_of


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    """A registry that the settings name."""
    with serving() as serves:
        monkeypatch.setenv("ENRICHER_REGISTRY__URL", serves.url)
        monkeypatch.setenv("ENRICHER_REGISTRY__CACHE_DIR", str(tmp_path))
        monkeypatch.setattr("enricher.worker.wiring.formats.REGISTRY_TIMEOUT_S", 1.0)
        yield serves


def found() -> Mapping[str, Finding]:
    """The findings by check."""
    return {finding.check: finding for finding in checks.registry_findings(load_settings())}


def test_without_a_registry_there_is_nothing_to_check() -> None:
    """Most workers read JSON."""
    assert {} == found()


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [hang_up, status(500), status(404), status(302), status(200)])
def test_a_registry_that_does_not_answer_as_one_fails(registry: Registry, behaviour: Behaviour) -> None:
    """The worker would wait; its exit code is that of an absent broker."""
    registry.behaviour = behaviour
    findings = found()
    assert ["FAIL"] == [finding.verdict for finding in findings.values()]
    assert 4 == exit_code(list(findings.values()))


@pytest.mark.parametrize("code", [401, 403])
def test_wrong_credentials_are_named(registry: Registry, code: int) -> None:
    """The message names the properties that hold them."""
    registry.behaviour = status(code)
    assert "basic.auth.user.info" in found()["registry"].advice


def test_a_missing_schema_of_records_says_how_to_register_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker would not start."""
    assert registry.url
    monkeypatch.setenv("ENRICHER_OUTPUT__FORMAT", "avro")
    finding = found()["subject entities-value"]
    assert "FAIL" == finding.verdict
    assert "register" in finding.advice


def test_the_registered_schema_of_records_is_found(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version and id."""
    monkeypatch.setenv("ENRICHER_OUTPUT__FORMAT", "avro")
    schema = record_writer("avro").schema
    assert schema is not None
    subject = subject_of(load_settings())
    registry.add(subject, schema.type, schema.text, 5)
    assert "has the schema of records: version 1, id 5" == found()[f"subject {subject}"].seen
