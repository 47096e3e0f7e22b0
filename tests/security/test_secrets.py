"""Secrets come from the environment or from files, and appear in no output, at any log level, in any failure."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from commands.support import run
from security.secured import KEY_PASSWORD, PASSWORD, Secured
from security.working import Outcome, place_at

from enricher.app.kafka import kafka_config
from enricher.errors import SettingsError
from enricher.settings import load_settings

CANARIES = (PASSWORD, KEY_PASSWORD)
CANARY = "canary-of-a-file-77b2"


def check_silence(outcome: Outcome) -> None:
    """No canary, in plain text or in base64."""
    for canary in CANARIES:
        assert canary not in outcome.said
        assert base64.b64encode(canary.encode()).decode().rstrip("=") not in outcome.said


COMMANDS = {
    "run": ["--verbose", "run", "--until-caught-up"],
    "doctor": ["--verbose", "doctor"],
    "publish": ["--verbose", "publish", "-"],
    "tail": ["--verbose", "tail", "--from-beginning", "--until-end"],
    "topics": ["--verbose", "topics", "create"],
    "settings": ["--verbose", "settings"],
}


@pytest.mark.broker
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_a_secret_when_it_fails(secured: Secured, command: str) -> None:
    """Refused by the broker, with the client's full debug log."""
    place = place_at(secured, "PASSWORDS", rights=False).with_properties(
        {**secured.papers.certificate("client"), "sasl.username": "nobody", "debug": "all"}
    )
    outcome = place.run(*COMMANDS[command], stdin='{"id": "1", "body": "Oslo"}')
    assert outcome.code == (0 if command == "settings" else 4), outcome.said
    assert command == "settings" or "_AUTHENTICATION" in outcome.said, "it does say why"
    check_silence(outcome)


@pytest.mark.broker
@pytest.mark.parametrize("changes", [{"no.such.property": "x"}, {"ssl.key.password": f"{KEY_PASSWORD}-not"}])
def test_properties_that_the_client_does_not_take_are_not_shown(secured: Secured, changes: dict[str, str]) -> None:
    """The client's reason names the property, never the value of a secret one."""
    place = place_at(secured, "CERTIFICATES").with_properties({**changes, "sasl.password": PASSWORD, "debug": "all"})
    outcome = place.run("--verbose", "run", "--until-caught-up")
    assert outcome.code == 2, outcome.said
    check_silence(outcome)


@pytest.mark.broker
def test_a_password_may_stand_in_a_file(secured: Secured, tmp_path: Path) -> None:
    """As Kubernetes mounts it, with a trailing newline. The output does not contain it."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    place = place_at(secured, "PASSWORDS").with_properties({
        **secured.papers.certificate("client"),
        "sasl.password": {"file": str(tmp_path / "password")},
        "debug": "all",
    })  # fmt: skip
    places = place.publish(0, 3)
    outcome = place.run("--verbose", "run", "--until-caught-up")
    assert outcome.code == 0, outcome.said
    check_silence(outcome)
    place.check_exactly_once(places)


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


def test_settings_shows_the_file_and_not_its_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path helps a user whose password is refused."""
    (tmp_path / "password").write_text(CANARY)
    set_file(monkeypatch, tmp_path / "password")
    shown = run("settings").stdout
    assert str(tmp_path / "password") in shown
    assert CANARY not in shown


def test_no_object_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed settings and Kafka configurations show no secret, nor do the errors of pydantic."""
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", json.dumps({"sasl.password": CANARY}))
    settings = load_settings()
    assert CANARY not in f"{settings!r} {settings} {kafka_config(settings)!r}"
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", json.dumps({"sasl.password": [CANARY]}))
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert CANARY not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("command", ["run", "enrich", "publish", "tail", "doctor", "settings", "topics"])
def test_help_shows_no_secret(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Defaults in help texts come from the code, never from the environment."""
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", json.dumps({"sasl.password": CANARY}))
    shown = run(command, "--help")
    assert shown.exit_code == 0
    assert CANARY not in shown.output
