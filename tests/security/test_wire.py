"""TLS, passwords and client certificates: valid ones work, and with invalid ones the message says what is wrong.

No output shows them, at any log level, in any failure.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from security.secured import KEY_PASSWORD, LISTENERS, PASSWORD, Secured
from security.working import Outcome, place_at

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_worker_enriches_exactly_once_over_each(secured: Secured, listener: str) -> None:
    """The whole worker as a process, with only its five rights on listeners that authenticate."""
    place = place_at(secured, listener)
    places = place.publish(0, 20)
    outcome = place.work()
    assert outcome.code == 0, outcome.said
    place.check_exactly_once(places)


def wrong_papers(secured: Secured) -> dict[str, tuple[str, dict[str, Any], list[str]]]:
    """A wrong configuration: the listener, properties to set, and properties to leave out."""
    papers = secured.papers
    own = list(papers.certificate("client"))
    return {
        "another CA": ("TLS", {"ssl.ca.location": papers.other_ca}, []),
        "no TLS": ("TLS", {"security.protocol": "PLAINTEXT"}, []),
        "another password": ("PASSWORDS", {"sasl.password": "wrong"}, []),
        "another mechanism": ("PASSWORDS", {"sasl.mechanism": "PLAIN"}, []),
        "no certificate": ("CERTIFICATES", {}, own),
        "an expired certificate": ("CERTIFICATES", papers.certificate("expired"), []),
        "another key password": ("CERTIFICATES", {"ssl.key.password": "wrong"}, []),
        "no CA file": ("TLS", {"ssl.ca.location": "no-such-file.pem"}, []),
    }


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ("another CA", 4, ["broker certificate could not be verified", "ssl.ca.location"]),
        # The broker hangs up without a word, as one that is starting does: waited for, as long as for any other.
        ("no TLS", 6, ["security.protocol"]),
        ("another password", 4, ["_AUTHENTICATION", "invalid credentials"]),
        ("another mechanism", 4, ["_AUTHENTICATION", "mechanism", "SCRAM-SHA-512"]),
        ("no certificate", 4, ["ssl.certificate.location", "it is missing"]),
        ("an expired certificate", 4, ["ssl.certificate.location", "expired"]),
        ("another key password", 2, ["ssl.key.location", "ssl.key.password"]),
        ("no CA file", 2, ["ssl.ca.location", "does this file exist"]),
    ],
)
def test_wrong_papers_are_told_in_one_line(secured: Secured, wrong: str, code: int, words: list[str]) -> None:
    """One line says what is wrong; the exit code tells settings from broker; there is no traceback."""
    listener, changes, without = wrong_papers(secured)[wrong]
    place = place_at(secured, listener, rights=False).with_properties(changes, without=without)
    waits_s = "1" if code == 6 else "120"  # only what may pass is waited for, and a busy broker needs a while to refuse
    place = replace(place, environment={**place.environment, "ENRICHER_WORKER__RECOVERY_TIMEOUT_S": waits_s})
    outcome = place.work()
    assert code == outcome.code, outcome.said
    assert [word for word in words if word not in outcome.message] == [], outcome.message
    assert "Traceback" not in outcome.said


CANARIES = (PASSWORD, KEY_PASSWORD)


def check_silence(outcome: Outcome) -> None:
    """No canary, in plain text or in base64."""
    for canary in CANARIES:
        assert canary not in outcome.said
        assert base64.b64encode(canary.encode()).decode().rstrip("=") not in outcome.said


COMMANDS = {
    "run": ["--verbose", "run", "--until-caught-up"],
    "doctor": ["--verbose", "doctor", "--only", "broker"],
    "topics": ["--verbose", "topics", "create"],
    "settings": ["--verbose", "settings"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_a_secret_when_it_fails(secured: Secured, command: str) -> None:
    """Refused by the broker, with the client's full debug log."""
    place = place_at(secured, "PASSWORDS", rights=False).with_properties(
        {**secured.papers.certificate("client"), "sasl.username": "nobody", "debug": "all"}
    )
    outcome = place.run(*COMMANDS[command])
    assert outcome.code == (0 if command == "settings" else 4), outcome.said
    assert command == "settings" or "_AUTHENTICATION" in outcome.said, "it does say why"
    check_silence(outcome)


@pytest.mark.parametrize("changes", [{"no.such.property": "x"}, {"ssl.key.password": f"{KEY_PASSWORD}-not"}])
def test_properties_that_the_client_does_not_take_are_not_shown(secured: Secured, changes: dict[str, str]) -> None:
    """The client's reason names the property, never the value of a secret one."""
    place = place_at(secured, "CERTIFICATES").with_properties({**changes, "sasl.password": PASSWORD, "debug": "all"})
    outcome = place.run("--verbose", "run", "--until-caught-up")
    assert outcome.code == 2, outcome.said
    check_silence(outcome)
