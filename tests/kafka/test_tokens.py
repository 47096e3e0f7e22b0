"""Tokens from a cloud's identity: what each provider is asked, what its tokens are, and what happens without one.

On stand-ins that check the requests; `tests/security/test_signing_in.py` shows the tokens to brokers.
"""

from __future__ import annotations

import base64
import builtins
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from support.aws import SECRET, SESSION, query_signature_is_right
from support.clock import Clock
from support.clouds import ACCOUNT, HEADER, WEB_TOKEN, Cloud, serving_cloud

from enricher.errors import BrokerError, NoAnswer, RecoveryExhausted, SettingsError, TransactionTrouble
from enricher.worker.kafka import tokens
from enricher.worker.kafka.errors import ClientErrors, Complaint, new_client
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.tokens import Token, Tokens, login_properties, wait_for_token

MSK = "b-1.articles.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098"
HUBS = "articles.servicebus.windows.net:9093"
GOOGLE = "bootstrap.articles.europe-west1.managedkafka.project.cloud.goog:9092"
CANARIES = (SECRET, SESSION, WEB_TOKEN, HEADER, "canary-access-token-e41c")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Metadata servers and STS. One for all tests, because google-auth learns the address when it is imported."""
    with serving_cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@pytest.fixture
def cloud(served: Cloud) -> Iterator[Cloud]:
    """They answer as they should; libraries are asked again."""
    tokens.tokens_of.cache_clear()
    served.hangs = served.refuses = False
    served.asked.clear()
    served.closing.clear()
    yield served
    served.closing.set()
    tokens.tokens_of.cache_clear()


def login(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, pod: str, servers: str, *, timeout_s: float = 20.0
) -> dict[str, Any]:
    """The properties of clients in such a pod."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in cloud.environment(pod).items():
        monkeypatch.setenv(name, value)
    kind = {"irsa": "msk-iam", "ec2": "msk-iam"}.get(pod, pod)
    return login_properties(kind, servers, timeout_s)


def decoded(text: str) -> str:
    """The text in base64 of URLs, without its padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


@pytest.mark.parametrize("pod", ["irsa", "ec2"])
def test_msk_takes_a_signed_request_to_connect(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, pod: str) -> None:
    """With the credentials of a service account's role or of a node's metadata server; the signature is computed again."""
    made = login(cloud, monkeypatch, pod, MSK)
    began_s = time.time()
    value, expires_s = made["oauth_cb"]("")
    url = decoded(value)
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert query_signature_is_right(url, "eu-west-1/kafka-cluster")
    assert query["X-Amz-Expires"] == "900"
    assert query["User-Agent"].startswith("enricher-")
    assert began_s + 899 <= expires_s <= time.time() + 900
    assert {"SASL_SSL", "OAUTHBEARER"} < {made[name] for name in made if name != "oauth_cb"} | {""}


def test_a_forged_token_for_msk_is_noticed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the check above: another action has another signature."""
    value, _ = login(cloud, monkeypatch, "ec2", MSK)["oauth_cb"]("")
    forged = decoded(value).replace("kafka-cluster%3AConnect", "kafka-cluster%3AWrite")
    assert not query_signature_is_right(forged, "eu-west-1/kafka-cluster")


def test_event_hubs_take_a_token_for_the_namespace(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The managed identity is asked for a token for exactly this namespace, and its token is passed on as it is."""
    value, expires_s = login(cloud, monkeypatch, "azure", HUBS)["oauth_cb"]("")
    assert value == "canary-access-token-e41c"
    assert expires_s == pytest.approx(time.time() + 3600, abs=30)
    [asked] = cloud.asked
    assert asked.endswith("&resource=https://articles.servicebus.windows.net")


def test_google_takes_a_token_in_the_form_of_a_jwt(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The algorithm says so, the claims name the service account, and the third part is the access token."""
    value, expires_s = login(cloud, monkeypatch, "gcp", GOOGLE)["oauth_cb"]("")
    header, claims, token = map(decoded, value.split("."))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert {"iss": "Google", "sub": ACCOUNT, "exp": expires_s}.items() <= json.loads(claims).items()
    assert token == "canary-access-token-e41c"
    assert expires_s == pytest.approx(time.time() + 3600, abs=60)


@pytest.mark.parametrize(
    "servers", ["broker.example:9092", f"{GOOGLE}, broker.example:9092", "a.cloud.goog.example:9092"]
)
def test_a_token_of_google_is_shown_to_nobody_else(servers: str) -> None:
    """It is good for the whole cloud, and the settings may come from a file that somebody else has written."""
    with pytest.raises(SettingsError, match=r"must be Google's, HOST\.cloud\.goog:PORT"):
        login_properties("gcp", servers, 1.0)


@pytest.mark.parametrize(("kind", "package"), [("msk-iam", "botocore"), ("azure", "azure"), ("gcp", "google.auth")])
def test_a_missing_package_is_named(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    real = builtins.__import__

    def absent(name: str, *more: object) -> object:
        if name.startswith(package):
            raise ImportError(name=name)
        return real(name, *more)  # type: ignore[arg-type]

    tokens.tokens_of.cache_clear()
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(SettingsError, match=r"needs more packages .*pip install 'kafka-enricher\[(aws|azure|gcp)\]'"):
        login_properties(kind, GOOGLE, 1.0)


def test_brokers_without_a_region_in_their_names_need_one(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private name is usual; the variable is Amazon's own."""
    assert login(cloud, monkeypatch, "ec2", "kafka.internal:9098")["oauth_cb"].name == "kafka.token=msk-iam"
    tokens.tokens_of.cache_clear()
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(SettingsError, match="set AWS_REGION"):
        login_properties("msk-iam", "kafka.internal:9098", 1.0)


@pytest.mark.parametrize(("pod", "servers"), [("irsa", MSK), ("ec2", MSK), ("azure", HUBS), ("gcp", GOOGLE)])
def test_an_identity_server_that_hangs_is_waited_for_with_a_bound(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, pod: str, servers: str
) -> None:
    """Whatever bounds its library has. It may pass, so it is no refusal; one thread hangs, however often one asks."""
    before = {*threading.enumerate()}
    made, cloud.hangs = login(cloud, monkeypatch, pod, servers, timeout_s=0.3), True
    for _ in range(3):
        with pytest.raises(TransactionTrouble, match=r"no answer within 0.3 s"):
            made["oauth_cb"]("")
    assert 1 >= sum(thread.name == "identity" for thread in {*threading.enumerate()} - before)


def test_a_refused_identity_is_no_outage(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider has answered: waiting changes nothing, so the process ends with the code of a missing right."""
    made, cloud.refuses = login(cloud, monkeypatch, "irsa", MSK), True
    with pytest.raises(
        BrokerError, match=r"the identity is refused: .*AccessDenied.*sts:AssumeRoleWithWebIdentity"
    ) as caught:
        made["oauth_cb"]("")
    assert [canary for canary in CANARIES if canary in str(caught.value)] == []


def test_an_answer_of_a_managed_identity_that_is_none_is_an_outage(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's library says the same of an identity that is missing as of one that is not there yet."""
    made, cloud.refuses = login(cloud, monkeypatch, "azure", HUBS), True
    with pytest.raises(TransactionTrouble, match=r"ManagedIdentityCredential: .*\(invalid_scope\)"):
        made["oauth_cb"]("")


@pytest.mark.parametrize(("pod", "servers"), [("irsa", MSK), ("ec2", MSK), ("azure", HUBS), ("gcp", GOOGLE)])
def test_no_secret_is_logged_at_any_level(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, pod: str, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The libraries log requests, signatures and session tokens when all is logged."""
    caplog.set_level(logging.DEBUG)
    made = login(cloud, monkeypatch, pod, servers)
    value, _ = made["oauth_cb"]("")
    shown = caplog.text + repr(made["oauth_cb"].ask()) + repr(replace(CONFIG, login=made))
    assert [canary for canary in (*CANARIES, value) if canary in shown] == []


CONFIG = KafkaConfig("localhost:1", "group", "a", "in", "out", "dead", 6, 6, 6, 6, 1, 1)


# ---- without a cloud


def tokens_of(*answers: Token | Exception, clock: Clock | None = None) -> Tokens:
    """Tokens from a library that answers so, one after the other."""
    left = iter(answers)

    def ask() -> Token:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Tokens("kafka.token=test", ask, 5.0, clock or Clock())


def test_the_last_token_serves_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """A provider that is away for a while costs nothing; then there is no token, and the reason is known."""
    clock = Clock()
    first, second = Token("a", clock.now_s + 100), Token("b", clock.now_s + 900)
    given = tokens_of(first, OSError("away"), OSError("away"), second, clock=clock)
    assert given.ask() is first
    assert given.ask() is first
    assert "the last one ends in 100 s: kafka.token=test: OSError: away" in caplog.text
    clock.now_s += 97
    with pytest.raises(TransactionTrouble, match="OSError: away"):
        given("")
    assert "no token for the brokers: kafka.token=test: OSError: away" in caplog.text
    assert "away" in str(given.trouble)
    assert given.ask() is second
    assert given.trouble is None


def test_a_token_that_has_ended_points_at_the_clock() -> None:
    """Its provider has just given it, so one of the two clocks is wrong; librdkafka would only say that it is expired."""
    clock = Clock()
    clock.now_s = 1_000_000.0
    with pytest.raises(TransactionTrouble, match="is it right") as caught:
        tokens_of(Token("a", clock.now_s - 3600), clock=clock).ask()
    assert "the token ends at 1970-01-12 12:46:40 UTC, and the clock of this machine says 1970-01-12 13:46:40" in str(
        caught.value
    )


def test_a_start_waits_for_a_token_within_a_bound() -> None:
    """A pod may start before what gives its identity; a refusal ends it at once."""
    clock = Clock()
    late = tokens_of(OSError("away"), Token("a", clock.now_s + 900), clock=clock)
    wait_for_token({"oauth_cb": late}, 30.0)
    wait_for_token({}, 30.0)
    with pytest.raises(RecoveryExhausted, match=r"no token for the brokers within 0 s, last: .*OSError: away"):
        wait_for_token({"oauth_cb": tokens_of(OSError("away"))}, 0.0)
    with pytest.raises(BrokerError, match="the identity is refused"):
        wait_for_token({"oauth_cb": tokens_of(ValueError("AADSTS700016: no such application"))}, 30.0)


@pytest.mark.parametrize("kind", [Consumer, Producer, AdminClient])
def test_each_kind_of_client_gets_its_token(kind: type[Consumer | Producer | AdminClient]) -> None:
    """From its own thread, before the constructor returns; and one without a provider says why at once."""
    given = Tokens("kafka.token=test", lambda: Token("a", time.time() + 900), 5.0)
    properties = config_with(given).client("consumer" if kind is Consumer else "admin") | (
        {"group.id": "g"} if kind is Consumer else {}
    )
    errors = ClientErrors()
    client = new_client(kind, properties, errors)
    assert errors.tokens is given
    if isinstance(client, Consumer):
        client.close()
    with pytest.raises(TransactionTrouble, match="OSError: away"):
        new_client(kind, properties | {"oauth_cb": tokens_of(OSError("away"))}, ClientErrors())
    with pytest.raises(NoAnswer, match="OSError: away"):
        new_client(kind, properties | {"oauth_cb": tokens_of(OSError("away"))}, Complaint())


def config_with(given: Tokens) -> KafkaConfig:
    """The configuration of clients that get these tokens."""
    made: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": given}
    return replace(CONFIG, login=made)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sasl.mechanism": "PLAIN"}, "leave out 'sasl.mechanism'"),
        ({"producer.sasl.mechanisms": "PLAIN"}, "leave out 'producer.sasl.mechanisms'"),
        ({"security.protocol": "SSL"}, "must be SASL_SSL"),
    ],
)
def test_properties_beside_a_token_do_not_contradict_it(properties: dict[str, Any], words: str) -> None:
    """Else a client would sign in by another way, or not at all."""
    config = config_with(tokens_of())
    with pytest.raises(SettingsError, match=words):
        replace(config, properties=properties)
    replace(config, login={}, properties=properties)
    assert replace(config, properties={"security.protocol": "SASL_SSL"}).producer()["security.protocol"] == "SASL_SSL"
