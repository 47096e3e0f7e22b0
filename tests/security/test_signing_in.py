"""Tokens instead of passwords: the whole worker, as a process, with an identity from a metadata server.

The brokers check a token's form, times and subject, but no signature: that is the identity provider's matter.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from kafka.clients import config_for, opened
from security.secured import TOKENS, USER, Secured
from security.working import Outcome, Place, five_rights, give, place_at
from support.clouds import HEADER, Cloud, serving_cloud
from support.patience import PATIENCE_S, wait_until
from support.topics import make_topics

from enricher.errors import BrokerError
from enricher.worker.kafka.tokens import Token, Tokens

pytestmark = pytest.mark.broker

NONE: Mapping[str, str] = MappingProxyType({})


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


def place_in(
    cloud: Cloud, secured: Secured, token: str = "azure", properties: Mapping[str, str] = NONE, timeout_s: float = 120.0
) -> Place:
    """Fresh topics on the listener that takes tokens, and a pod with an identity."""
    place = place_at(secured, TOKENS).with_properties(properties)
    pod = cloud.environment("azure") if token == "azure" else {}
    own = {"ENRICHER_KAFKA__TOKEN": token, "ENRICHER_WORKER__RECOVERY_TIMEOUT_S": f"{timeout_s:g}"}
    return replace(place, environment={**place.environment, **pod, **own})


def of_a_provider(url: str) -> dict[str, str]:
    """The properties of clients that ask a provider of tokens themselves, with an id and a secret."""
    asked = {"token.endpoint.url": f"{url}/token", "client.id": "enricher", "client.secret": HEADER}
    return {f"sasl.oauthbearer.{name}": value for name, value in asked.items()}


def check(outcome: Outcome, code: int, *words: str) -> None:
    """The code, the reason, and no secret."""
    assert code == outcome.code, outcome.said
    assert [word for word in words if word not in outcome.said] == []
    assert [secret for secret in (HEADER, "eyJ") if secret in outcome.said] == []
    assert "Traceback" not in outcome.said


@pytest.mark.slow
def test_tokens_are_renewed_while_the_worker_runs(secured: Secured, cloud: Cloud) -> None:
    """All of its clients sign in. Brokers end a connection with its token; work goes on over the ends of several.

    The provider is away until no client has a token, and comes back: nothing is lost or doubled.
    """
    cloud.life_s = 14.0
    place = place_in(cloud, secured)
    places = place.publish(0, 20)
    with place.started("--verbose", "run") as command:
        wait_until(lambda: len(place.outputs()) == len(places), PATIENCE_S, "the first outputs", every_s=1.0)
        cloud.refuses = True
        without = "no token for the brokers: kafka.token=azure: "
        wait_until(lambda: without in command.log.read_text("utf-8"), PATIENCE_S, "the last token ends", every_s=1.0)
        places |= place.publish(20, 20)
        cloud.refuses = False
        wait_until(lambda: len(place.outputs()) == len(places), PATIENCE_S, "the other outputs", every_s=1.0)
        command.process.terminate()
        check(command.outcome(), 0)
    place.check_exactly_once(places)


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


def test_any_provider_gives_tokens_to_the_client_library(secured: Secured, cloud: Cloud) -> None:
    """Without code of ours; the secret is in no log."""
    place = place_in(cloud, secured, "oidc", of_a_provider(cloud.url))
    places = place.publish(0, 20)
    check(place.run("--verbose", "run", "--until-caught-up"), 0)
    place.check_exactly_once(places)


REFUSED = ("the brokers refuse the token of kafka.token=azure", "the clock of this machine is wrong")


@pytest.mark.parametrize(
    ("token", "served", "code", "words"),
    [
        pytest.param("azure", {"token": lambda _: "no token of these brokers"}, 4, REFUSED, id="another token"),
        pytest.param("oidc", {"refuses": True}, 4, ("invalid_client",), id="a provider that refuses"),
        pytest.param("oidc", {}, 6, ("OAUTHBEARER token",), id="a provider that is away"),
    ],
)
def test_who_is_refused_ends_at_once_and_who_hears_nothing_waits(
    secured: Secured, cloud: Cloud, token: str, served: dict[str, object], code: int, words: Sequence[str]
) -> None:
    """Within the bound of a start. The message has the setting and the reason; nobody asks brokers without a token."""
    for name, value in served.items():
        setattr(cloud, name, value)
    properties = of_a_provider(cloud.url if served else "http://127.0.0.1:1") if token == "oidc" else NONE
    place = place_in(cloud, secured, token, properties, 1.0 if code == 6 else 120.0)
    check(place.work(), code, *words)
