"""TLS, passwords and client certificates: valid ones work, and with invalid ones the message says what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from security.secured import LISTENERS, Secured
from security.working import place_at

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
    waits_s = "5" if code == 6 else "120"  # only what may pass is waited for, and a busy broker needs a while to refuse
    place = replace(place, environment={**place.environment, "ENRICHER_WORKER__RECOVERY_TIMEOUT_S": waits_s})
    outcome = place.work()
    assert code == outcome.code, outcome.said
    assert [word for word in words if word not in outcome.message] == [], outcome.message
    assert "Traceback" not in outcome.said


def test_the_other_commands_take_the_same_way(secured: Secured) -> None:
    """All over TLS: topics exist, articles are published, a worker enriches them, `tail` shows them."""
    place = place_at(secured, "TLS")
    created = place.run("topics", "create")
    assert created.code == 0, created.said
    assert created.said.count("exists, left alone") == 3
    article = json.dumps({"id": "tls", "body": "Angela Merkel met Emmanuel Macron in Paris."})
    published = place.run("publish", "-", stdin=article)
    assert published.code == 0, published.said
    assert place.work().code == 0
    shown = place.run("tail", "--from-beginning", "--until-end", "--json")
    assert shown.code == 0, shown.said
    assert '"tls"' in shown.said


@pytest.mark.parametrize("listener", ["PASSWORDS", "CERTIFICATES"])
def test_doctor_is_content_with_the_five_rights(secured: Secured, listener: str) -> None:
    """It tries each right as this user; what it may not see beyond them is no failure."""
    outcome = place_at(secured, listener).run("--quiet", "doctor", "--json")
    assert outcome.code == 0, outcome.said
    checks = json.loads(outcome.said[outcome.said.index("{") :])["checks"]
    rights = {check["check"]: check["verdict"] for check in checks if check["check"].startswith("right: ")}
    assert len(rights) == 5
    assert set(rights.values()) == {"ok"}
