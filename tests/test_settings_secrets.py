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

WORDS = ("hunter2", "correct", "battery")
"""The parts of the password, whatever stands between them."""
PLAIN = "".join(WORDS)
URL, REGISTRY, KAFKA = "ENRICHER_REGISTRY__URL", "ENRICHER_REGISTRY__PROPERTIES", "ENRICHER_KAFKA__PROPERTIES"


def with_password(template: str, between: str = "") -> str:
    """The template with the password, whose parts have this between them."""
    return template.replace("PW", between.join(WORDS))


def property_of(name: str, value: object = PLAIN) -> str:
    """One property as a setting writes it."""
    return json.dumps({name: value})


URLS = [
    with_password("https://user:PW@127.0.0.1:1"),
    *(with_password("https://user:PW@127.0.0.1:1/path?x=y#z", each) for each in ("@", "/", "#", "[")),
    with_password("https://PW@127.0.0.1:1"),
    with_password("https://user:PW"),
    with_password("https://user:PW@127.0.0.1:port"),
    with_password("https://user:PW@[::1"),
    with_password("https://127.0.0.1:1,https://user:PW@127.0.0.1:2/x", "/"),
    with_password("HTTPS://user:PW@127.0.0.1:1"),
    with_password("user:PW@127.0.0.1:1"),
    with_password("https://127.0.0.1:1?token=PW"),
    with_password("https://127.0.0.1:1#PW"),
]  # fmt: skip
PROPERTIES = [
    (REGISTRY, property_of(name))
    for name in ("basic.auth.user.info", "basic.auth.user.inf", "bearer.auth.token", "sasl.password", f"user:{PLAIN}")
] + [
    (KAFKA, property_of(name))
    for name in (
        "sasl.password", "consumer.producer.sasl.password", "SASL.PASSWORD", "sasl.pasword", "sasl_password", "ssl.key.pem",
        "sasl.jaas.config", "", " sasl.password", f"user:{PLAIN}",
    )
] + [
    (KAFKA, property_of("sasl.password", {"value": PLAIN})),
    (KAFKA, property_of("sasl.password", {"file": f"/nowhere/{'x'}", PLAIN: PLAIN})),
    (KAFKA, property_of("sasl.password", [PLAIN])),
    (KAFKA, property_of("sasl.oauthbearer.token.endpoint.url", f"https://client:{PLAIN}@127.0.0.1/token")),
    (KAFKA, json.dumps(f"sasl.password={PLAIN}")),
    (KAFKA, f"sasl.password={PLAIN}"),
    (REGISTRY, f'{{"basic.auth.user.info": "user:{PLAIN}",}}'),
    ("ENRICHER_KAFKA__BOOTSTRAP_SERVERS", f"user:{PLAIN}@127.0.0.1:1"),
    ("ENRICHER_MODEL__SOURCE", f"https://user:{PLAIN}@127.0.0.1/model"),
    ("ENRICHER_KAFKA__SASL_PASSWORD", PLAIN),
    ("ENRICHER_KAFKA__REQUEST_TIMEOUT_S", PLAIN),
    ("ENRICHER_OUTPUT__FORMAT", PLAIN),
    ("ENRICHER_TASKS", json.dumps({"names": {"source": "x", "precision": PLAIN}})),
]  # fmt: skip
CASES = [(URL, text) for text in URLS] + PROPERTIES


def every_fourth_is_quick(cases: Sequence[tuple[str, str]]) -> list[object]:
    """Values for `parametrize`; `--quick` leaves the others out."""
    return [pytest.param(*case, marks=[pytest.mark.slow] if number % 4 else []) for number, case in enumerate(cases)]


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
    """Nothing that is said has a part of the password."""
    assert [] == [word for word in WORDS if word in said], said


@pytest.mark.parametrize(("variable", "value"), every_fourth_is_quick(CASES))
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


@pytest.mark.parametrize(("variable", "value"), every_fourth_is_quick(CASES[::4]))
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
        "https://a:1, http://b/path",
        "https://[::1]:8081",
        "broker-1:9092,broker-2:9092",
        "SASL_SSL://broker-1:9093,SASL_SSL://broker-2:9093",
        "kafka/host@REALM",
        "/@id",
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
    password = f"{first}{WORDS[0]}{second}{WORDS[1]}{last}"
    said = shown_text(f"{scheme}://{user}{password}@registry:8081/path")
    assert [] == [word for word in WORDS if word in said], said
