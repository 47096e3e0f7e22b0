"""Tokens instead of passwords: the whole worker, as a process, with an identity from a metadata server.

The brokers check a token's form, times and subject, but no signature: that is the identity provider's matter.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.clients import config_for, opened
from security.rights import five_rights, give
from security.secured import TOKENS, USER, Secured
from security.working import Outcome, Place, place_at
from support.clouds import HEADER, Cloud, serving_cloud
from support.patience import PATIENCE_S, wait_until
from support.topics import make_topics

from enricher.errors import BrokerError
from enricher.worker.kafka.tokens import Token, Tokens

pytestmark = pytest.mark.broker


def unsigned(expires_s: float, subject: str = USER) -> str:
    """A token as the brokers of these tests take it."""
    parts = {"alg": "none"}, {"sub": subject, "iat": time.time(), "exp": expires_s}
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, ""])


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """The stand-ins that give the worker its identity."""
    with serving_cloud(tmp_path) as served:
        served.token = unsigned
        yield served


def place_in(cloud: Cloud, secured: Secured, *, timeout_s: float = 120.0) -> Place:
    """Fresh topics on the listener that takes tokens, and a pod with an identity."""
    place = place_at(secured, TOKENS)
    own = {"ENRICHER_KAFKA__TOKEN": "azure", "ENRICHER_WORKER__RECOVERY_TIMEOUT_S": f"{timeout_s:g}"}
    return replace(place, environment={**place.environment, **cloud.environment("azure"), **own})


def check(outcome: Outcome, code: int, *words: str) -> None:
    """The code, the reason, and no secret."""
    assert code == outcome.code, outcome.said
    assert [word for word in words if word not in outcome.said] == []
    assert [secret for secret in (HEADER, "eyJ") if secret in outcome.said] == []
    assert "Traceback" not in outcome.said


def test_a_worker_enriches_exactly_once_with_tokens(secured: Secured, cloud: Cloud) -> None:
    """All of its clients sign in: consumer, producers and admin clients; so do those of a command."""
    place = place_in(cloud, secured)
    places = place.publish(0, 20)
    check(place.run("--verbose", "run", "--until-caught-up"), 0)
    place.check_exactly_once(places)
    check(place.run("doctor", "--only", "broker"), 0, "transactional id WRITE")
    assert "azure.identity" not in place.run("lag").said


@pytest.mark.slow
def test_tokens_are_renewed_while_the_worker_runs(secured: Secured, cloud: Cloud) -> None:
    """Brokers end a connection with its token. Work goes on over the ends of several, and nothing is lost or doubled.

    The provider is away until no client has a token, and comes back.
    """
    cloud.life_s = 14.0
    place = place_in(cloud, secured)
    places = place.publish(0, 20)
    with place.started("run") as command:
        wait_until(lambda: len(place.outputs()) == len(places), PATIENCE_S, "the first outputs", every_s=1.0)
        for count, away in enumerate([False, True, False], 1):
            cloud.refuses, before = away, len(cloud.asked)
            places |= place.publish(20 * count, 20)
            wait_until(lambda more=before + 6: len(cloud.asked) >= more, PATIENCE_S, "renewals")  # type: ignore[misc]
        command.process.terminate()
        check(command.outcome(), 0, "no token for the brokers: kafka.token=azure: ")
    check(place.work(), 0)
    place.check_exactly_once(places)


def test_an_identity_server_that_hangs_ends_as_brokers_that_are_away(secured: Secured, cloud: Cloud) -> None:
    """Waited for within the bound of a start; the message names the setting and the time."""
    place, cloud.hangs = place_in(cloud, secured, timeout_s=1.0), True
    check(place.work(), 6, "waiting for a token", "kafka.token=azure: no answer within 2 s")
    check(place.run("lag"), 4, "kafka.token=azure: no answer within 2 s")


def test_a_refused_identity_ends_as_a_missing_right(secured: Secured, cloud: Cloud) -> None:
    """Amazon's STS has answered, so nothing is waited for; nobody has asked the brokers."""
    place, cloud.refuses = place_at(secured, TOKENS, rights=False), True
    own = {**cloud.environment("irsa"), "ENRICHER_KAFKA__TOKEN": "msk-iam"}
    outcome = replace(place, environment={**place.environment, **own}).work()
    check(outcome, 4, "kafka.token=msk-iam: the identity is refused", "AccessDenied")


@pytest.mark.parametrize(
    "made",
    [lambda _: "no token of these brokers", lambda expires_s: unsigned(expires_s - 7200)],
    ids=["other", "expired"],
)
def test_a_refused_token_points_at_rights_and_clock(secured: Secured, cloud: Cloud, made: object) -> None:
    """The brokers say only that it is invalid; a clock that is wrong is a usual reason."""
    cloud.token = made  # type: ignore[assignment]
    outcome = place_in(cloud, secured).work()
    check(outcome, 4, "the brokers refuse the token of kafka.token=azure", "the clock of this machine is wrong")


@pytest.mark.slow
def test_a_worker_without_work_that_is_refused_for_long_ends(secured: Secured) -> None:
    """No transaction fails, so only this ends it; its restart gets another token."""
    topics = make_topics(secured.admin_address)
    give(secured, five_rights(topics))
    made, good = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, True

    def ask() -> Token:
        ends_s = time.time() + 14
        return Token(unsigned(ends_s) if good else "another.provider.token", ends_s)

    config = replace(
        config_for(topics),
        bootstrap_servers=secured.cluster.address_of(TOKENS),
        properties={"ssl.ca.location": secured.papers.ca},
        login={**made, "oauth_cb": Tokens("kafka.token=test", ask, 5.0)},
        partition_timeout_s=8.0,
    )
    source, _ = opened(config)
    good = False
    with pytest.raises(BrokerError, match=r"no broker for \d+ s: .*the brokers refuse the token of kafka.token=test"):
        wait_until(lambda: bool(source.poll(10, 0.1)), PATIENCE_S, "the end")


def oidc_place(cloud: Cloud, secured: Secured, **environment: str) -> Place:
    """A worker that asks a provider of tokens itself, with an id and a secret."""
    place = place_at(secured, TOKENS).with_properties(
        {
            "sasl.oauthbearer.token.endpoint.url": f"{cloud.url}/token",
            "sasl.oauthbearer.client.id": "enricher",
            "sasl.oauthbearer.client.secret": HEADER,
        }
    )
    return replace(place, environment={**place.environment, "ENRICHER_KAFKA__TOKEN": "oidc", **environment})


def test_any_provider_gives_tokens_to_the_client_library(secured: Secured, cloud: Cloud) -> None:
    """Without code of ours; the secret is in no log."""
    place = oidc_place(cloud, secured)
    places = place.publish(0, 20)
    check(place.run("--verbose", "run", "--until-caught-up"), 0)
    place.check_exactly_once(places)


def test_a_refusing_provider_ends_as_a_missing_right(secured: Secured, cloud: Cloud) -> None:
    """It has answered: waiting changes nothing."""
    cloud.refuses = True
    check(oidc_place(cloud, secured).work(), 4, "invalid_client")


def test_a_provider_that_is_away_ends_as_brokers_that_are_away(secured: Secured, cloud: Cloud) -> None:
    """It may come back, so the start waits within its bound."""
    place = oidc_place(cloud, secured, ENRICHER_WORKER__RECOVERY_TIMEOUT_S="1")
    place = place.with_properties({"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"})
    check(place.work(), 6, "OAUTHBEARER token")
