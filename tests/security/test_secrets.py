"""Secrets come from the environment or from files, and no setting, error or help text shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enricher.errors import SettingsError
from enricher.worker.settings import load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

CANARY = "canary-of-a-file-77b2"


def set_file(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Put the password into a file."""
    properties = {"sasl.username": "worker", "sasl.password": {"file": str(path)}}
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", json.dumps(properties))


def test_a_file_is_read_to_its_last_line_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Inner spaces and newlines belong to the secret. A TOML file works as well."""
    path = tmp_path / "password"
    path.write_bytes(b" two\nlines \r\n")
    set_file(monkeypatch, path)
    assert kafka_config(load_settings()).producer()["sasl.password"] == " two\nlines "
    monkeypatch.delenv("ENRICHER_KAFKA__PROPERTIES")
    Path("enricher.toml").write_text(f'[kafka.properties]\n"sasl.password" = {{file = "{path.as_posix()}"}}\n')
    assert kafka_config(load_settings()).consumer()["sasl.password"] == " two\nlines "


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (CANARY.encode() + b"\xff", "not UTF-8")])
def test_a_file_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    """The message has the property and the reason, comes before any connection, and does not show what was read."""
    path = tmp_path / "password"
    if content:
        path.write_bytes(content)
    set_file(monkeypatch, path)
    with pytest.raises(SettingsError) as caught:
        kafka_config(load_settings())
    assert [word for word in ("sasl.password", str(path), reason) if word not in str(caught.value)] == []
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_object_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed settings and Kafka configurations show no secret, nor do the errors of pydantic."""
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", json.dumps({"sasl.password": CANARY}))
    settings = load_settings()
    assert CANARY not in f"{settings!r} {settings} {kafka_config(settings)!r}"
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", json.dumps({"sasl.password": [CANARY]}))
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert CANARY not in f"{caught.value} {caught.value.__cause__}"
