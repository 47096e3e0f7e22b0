"""Wherever somebody writes a password in the settings, no command shows it or a part of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands.cli_runner import run
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.settings.group import FromFile
from enricher.worker.settings.listing import all_rows, shown_properties, shown_text

PLAIN = "hunter2correct"
"""The password."""
URL, REGISTRY, KAFKA = "ENRICHER_REGISTRY__URL", "ENRICHER_REGISTRY__PROPERTIES", "ENRICHER_KAFKA__PROPERTIES"


def property_of(name: str, value: object = PLAIN) -> str:
    """One property as a setting writes it."""
    return json.dumps({name: value})


CASES = [
    (URL, f"https://user:{PLAIN}@127.0.0.1:1/path?x=y#z"),
    (URL, f"https://user:{PLAIN}"),
    (URL, f"https://user:{PLAIN}@127.0.0.1:port"),
    (URL, f"https://127.0.0.1:1,https://user:{PLAIN}@127.0.0.1:2/x"),
    (URL, f"user:{PLAIN}@127.0.0.1:1"),
    (URL, f"https://127.0.0.1:1?token={PLAIN}"),
    (REGISTRY, property_of("basic.auth.user.info")),
    (REGISTRY, property_of("basic.auth.user.inf")),
    (REGISTRY, f'{{"basic.auth.user.info": "user:{PLAIN}",}}'),
    (KAFKA, property_of("sasl.password")),
    (KAFKA, property_of("consumer.sasl.pasword")),
    (KAFKA, property_of(f"user:{PLAIN}")),
    (KAFKA, property_of("sasl.password", {"value": PLAIN})),
    (KAFKA, property_of("sasl.password", {"file": f"/nowhere/{'x'}", PLAIN: PLAIN})),
    (KAFKA, property_of("sasl.oauthbearer.token.endpoint.url", f"https://client:{PLAIN}@127.0.0.1/token")),
    (KAFKA, f"sasl.password={PLAIN}"),
    ("ENRICHER_KAFKA__BOOTSTRAP_SERVERS", f"user:{PLAIN}@127.0.0.1:1"),
    ("ENRICHER_KAFKA__SASL_PASSWORD", PLAIN),
    ("ENRICHER_KAFKA__REQUEST_TIMEOUT_S", PLAIN),
    ("ENRICHER_TASKS", json.dumps({"names": {"source": "x", "precision": PLAIN}})),
]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Runs commands, without a registry to ask: their output, log and errors."""
    monkeypatch.setattr("enricher.worker.wiring.formats.REGISTRY_TIMEOUT_S", 0.2)
    monkeypatch.setenv("ENRICHER_REGISTRY__CACHE_DIR", str(tmp_path))
    caplog.set_level(0)

    def everything(*commands: Sequence[str]) -> str:
        output = []
        for command in commands:
            done = run(*command)
            output += [done.output, str(done.exception or ""), repr(done.exception or "")]
        return "\n".join([*output, caplog.text])

    return everything


SETTINGS, ASKS_THE_REGISTRY = ("settings",), ("schemas", "register", "--dry-run", "--format", "avro")


def check_silence(said: str) -> None:
    """Nothing that is said has a half of the password."""
    assert [] == [half for half in (PLAIN[:7], PLAIN[7:]) if half in said], said


@pytest.mark.parametrize(("variable", "value"), CASES)
def test_no_command_shows_a_part_of_a_password(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    """In a URL, a property with a usual, unusual or mistyped name, a value of the wrong form, or the wrong setting."""
    rows = [row for row in all_rows() if row.variable == variable or row.group == "tasks"]
    monkeypatch.setattr(
        "enricher.worker.commands.settings.all_rows", lambda: rows
    )  # the others take nine tenths of the time
    if variable in {REGISTRY, KAFKA}:
        monkeypatch.setenv(URL, "http://127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    check_silence(said(SETTINGS, ASKS_THE_REGISTRY))


@pytest.mark.parametrize(("variable", "value"), CASES[::4])
def test_neither_if_it_is_in_a_file(variable: str, value: str, said: Callable[..., str]) -> None:
    """The same from `.env`, by these commands in full and by help."""
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    address = f"{URL}=http://127.0.0.1:1\n" if variable in {REGISTRY, KAFKA} else ""
    Path(".env").write_text(f"{address}{variable}='{quoted}'\n", "utf-8")
    check_silence(said(SETTINGS, ASKS_THE_REGISTRY, ("settings", "--help")))


@pytest.mark.parametrize(
    "text",
    [
        "https://registry:8081",
        "https://[::1]:8081",
        "SASL_SSL://broker-1:9093,SASL_SSL://broker-2:9093",
        "kafka/host@REALM",
        "",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    """Somebody looks for the wrong address there."""
    assert text == shown_text(text)


def test_properties_are_shown_by_name_and_file_alone() -> None:
    """No list of names decides which value is a secret: it would have to know every mistyped one."""
    file = FromFile(file=Path("/run/password"))
    shown = shown_properties({"security.protocol": "SASL_SSL", "sasl.password": file, "retries": 5})
    assert {"security.protocol": "***", "sasl.password": {"file": "/run/password"}, "retries": "***"} == shown


_SEPARATED = st.text(st.sampled_from("@/?#:,%[]\\ é&="), max_size=3)


@given(st.sampled_from(["http", "https"]), st.sampled_from(["user:", "", ":"]), _SEPARATED, _SEPARATED, _SEPARATED)
def test_no_url_shows_what_stands_before_its_host(scheme: str, user: str, first: str, second: str, last: str) -> None:
    """Any of the characters that people forget to encode, anywhere in the password."""
    password = f"{first}{PLAIN[:7]}{second}{PLAIN[7:]}{last}"
    check_silence(shown_text(f"{scheme}://{user}{password}@registry:8081/path"))
