"""The client: settings checked at the start, what each answer of a registry means, bounds, and no word of a secret."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
import trustme
from support.schema_registry import (
    Behaviour,
    Registry,
    babble,
    cut_off,
    hang_up,
    registry_error,
    serving,
    silent,
    status,
)

from enricher.errors import SettingsError
from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.registry.registry_client import (
    Property,
    RegistryClient,
    RegistryUnavailable,
    UnknownToRegistry,
    UnusableSchema,
)

SECRET = "geheim"
GOOD = "http://registry:8081"


def refusal(url: str, properties: dict[str, str | int | float | bool]) -> str:
    """The message of a configuration that is refused."""
    with pytest.raises(SettingsError) as raised:
        RegistryClient(url, properties, timeout_s=1.0, max_schema_bytes=1_000)
    return str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "", " , ", "registry:8081", "ftp://registry", "http://", f"http://u:{SECRET}@", f"http://u:{SECRET}@host",
        f"http://u:{SECRET}@host:port", f"http://u:{SECRET}@[::1", f"http://host/?token={SECRET}", f"http://host/#{SECRET}",
        f"http://ho st/{SECRET}", f"http://hoßt/{SECRET}", f"{GOOD},mock://{SECRET}",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_right_is_refused_without_repeating_it(url: str) -> None:
    """It may contain a password."""
    message = refusal(url, {})
    assert "registry.url" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("properties", "about"),
    [
        ({"basic.auth.user": SECRET}, "basic.auth.user"),
        ({f"user:{SECRET}": SECRET}, "a name"),
        ({"basic.auth.user.info": SECRET}, "basic.auth.user.info"),
        ({"basic.auth.user.info": f"u:{SECRET}", "bearer.auth.token": SECRET}, "either"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.secret": SECRET}, "bearer.auth"),
        ({"timeout": 5}, "leave out timeout"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"ssl.key.location": __file__}, "ssl.certificate.location"),
        ({"ssl.key.password": SECRET}, "ssl.certificate.location"),
        ({"proxy": f"http://u:{SECRET}@proxy:port"}, "proxy"),
    ],
)
def test_properties_that_cannot_be_right_are_refused(
    properties: dict[str, str | int | float | bool], about: str
) -> None:
    """The message names the property, and no value."""
    message = refusal(GOOD, properties)
    assert about in message
    assert SECRET not in message


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_is_no_certificate_is_refused_at_the_start(name: str, tmp_path: Path) -> None:
    """Not with the first request."""
    (tmp_path / "no.pem").write_text("nothing of the kind", "ascii")
    assert "cannot be used" in refusal("https://registry", {name: str(tmp_path / "no.pem")})


def test_a_proxy_of_the_environment_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the password that it may contain."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://u:{SECRET}@proxy:port")
    message = refusal("https://registry", {})
    assert "HTTPS_PROXY" in message
    assert SECRET not in message


SEVEN = SchemaRef("id", "7")
TEXT = '"string"'
PASSWORD = "geheim-7f3a"


def client(*urls: str, timeout_s: float = 5.0, properties: dict[str, Property] | None = None) -> RegistryClient:
    """A client of these URLs."""
    return RegistryClient(",".join(urls), properties or {}, timeout_s=timeout_s, max_schema_bytes=10_000)


def referring(*pointers: tuple[str, str, int], text: str = TEXT) -> dict[str, object]:
    """A schema with references, as a registry returns it."""
    return {
        "schema": text,
        "schemaType": "PROTOBUF",
        "references": [{"name": name, "subject": subject, "version": version} for name, subject, version in pointers],
    }


def test_a_schema_without_a_type_is_avro() -> None:
    """By id and by GUID."""
    guid = "1af1f5f5-0000-4000-8000-000000000000"
    with serving(Registry({"7": {"schema": TEXT}, guid: {"schema": "{}", "schemaType": "JSON"}})) as registry:
        asks = client(registry.url)
        assert Schema("AVRO", TEXT) == asks.schema(SEVEN)
        assert Schema("JSON", "{}") == asks.schema(SchemaRef("guid", guid))


def test_references_come_dependencies_first_each_asked_for_once() -> None:
    """Also those of references; two ways to one schema are one request."""
    with serving(Registry({"7": referring(("b", "s/b", 1), ("a", "a", 2))})) as registry:
        registry.versions |= {("s/b", "1"): referring(("a", "a", 2), text="B"), ("a", "2"): referring(text="A")}
        found = client(registry.url).schema(SEVEN)
    assert (NamedSchema("a", "A"), NamedSchema("b", "B")) == found.references
    assert 3 == len(registry.requests)


@pytest.mark.parametrize(
    ("schema", "versions", "why"),
    [
        pytest.param({"schema": "ä" * 5_001}, {}, "more than 10,000 bytes", id="too large, though not in characters"),
        pytest.param({"schema": "x", "schemaType": "XML"}, {}, "type", id="a type of a plug-in that we do not have"),
        pytest.param(
            referring(("b", "b", 1)), {("b", "1"): referring(text="x" * 10_001)}, "more than 10,000", id="a reference"
        ),
        pytest.param(
            referring(("b", "b", 1)),
            {("b", "1"): referring(*[(f"r{n}", "r", n) for n in range(200)])}
            | {("r", str(n)): referring() for n in range(200)},
            "more than 100",
            id="too many references",
        ),
    ],
)
def test_what_is_beyond_the_bounds_or_unknown_is_unusable(
    schema: dict[str, object], versions: dict[tuple[str, str], dict[str, object]], why: str
) -> None:
    """The limit counts bytes, also those of references, whose number is bounded too."""
    with serving(Registry({"7": schema}, versions)) as registry, pytest.raises(UnusableSchema, match=why):
        client(registry.url).schema(SEVEN)
    assert 103 > len(registry.requests)


def test_a_reference_that_is_not_there_makes_the_schema_unknown() -> None:
    """A follower of the registry may be behind: it may come."""
    with (
        serving(Registry({"7": referring(("b", "b", 1))})) as registry,
        pytest.raises(UnknownToRegistry, match="Version not found"),
    ):
        client(registry.url).schema(SEVEN)


def test_a_circle_of_references_ends() -> None:
    """No registry accepts one."""
    versions = {("b", "1"): referring(("a", "a", 1)), ("a", "1"): referring(("b", "b", 1))}
    with serving(Registry({"7": referring(("b", "b", 1))}, versions)) as registry:
        assert 2 == len(client(registry.url).schema(SEVEN).references)


def test_only_a_registrys_own_404_means_unknown() -> None:
    """A proxy's page, a path that the registry does not have, or any other code, say nothing about the schema."""
    with serving() as registry:
        asks = client(registry.url)
        with pytest.raises(UnknownToRegistry, match="Schema 7 not found"):
            asks.schema(SEVEN)
        for answer in (
            status(404),
            lambda _: registry_error(404, 404, "Not Found"),
            status(404, b'{"error_code": "40403"}'),
        ):
            registry.behaviour = answer
            with pytest.raises(RegistryUnavailable, match="404"):
                asks.schema(SEVEN)


OTHER_STATUS = (301, 302, 307, 400, 401, 403, 405, 409, 429, 500, 502, 503, 504)
NO_ANSWER = [
        b"", b"<html>sign in</html>", b"[" * 100_000, b"{}", b"[]", b"null", b"5", b'"x"', b'{"schema": 5}', b"\xff\xfe",
        b'{"schema": "x", "references": 5}', b'{"schema": "x", "references": [[]]}', b'{"schema": null, "id": []}',
        b'{"schema": "x", "schemaType": ["AVRO"]}', b'{"schema": "x", "metadata": 5}',
]  # fmt: skip


def registry_error_of(number: int) -> Behaviour:
    """An answer of the registry itself that says nothing about the schema."""
    return lambda _handler: registry_error(number, number * 100 + 1, "Error in the backend data store")


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        *((status(number), str(number)) for number in OTHER_STATUS),
        *((status(200, body), r"is registry\.url right") for body in NO_ANSWER),
        *((registry_error_of(number), str(number)) for number in (401, 429, 500)),
        (lambda _: registry_error(503, 40403, "Schema not found"), "503"),
        (babble, "cannot be asked"),
        (cut_off, "cannot be asked"),
        (hang_up, "cannot be asked"),
        (silent, "ReadTimeout"),
    ],
)
def test_what_is_no_registrys_answer_means_unavailable(behaviour: Behaviour, why: str) -> None:
    """A redirect is not followed, a page for signing in comes with 200, and a broker's port talks garbage."""
    with serving() as registry:
        registry.behaviour = behaviour
        with pytest.raises(RegistryUnavailable, match=why):
            client(registry.url, timeout_s=0.3 if behaviour is silent else 5.0).schema(SEVEN)
    assert 2 >= len(registry.requests), "one for the schema, one to hear whether it answers about others"


def test_several_urls_are_tried_until_one_answers() -> None:
    """A registry's own answer is final, also 'unknown'."""
    with serving() as first, serving(Registry({"7": {"schema": TEXT}})) as second:
        asks = client(first.url, second.url)
        for behaviour in (status(503), hang_up):
            first.behaviour = behaviour
            assert TEXT == asks.schema(SEVEN).text
        first.behaviour = None
        with pytest.raises(UnknownToRegistry):
            asks.schema(SEVEN)
    assert f"{first.url}, {second.url}" == asks.name


def test_credentials_go_to_the_registry_and_into_no_message(caplog: pytest.LogCaptureFixture) -> None:
    """As basic properties, or as a token; also when everything fails."""
    caplog.set_level(logging.DEBUG)
    with serving() as registry:
        said = []
        for name, secret in (("basic.auth.user.info", f"me:{PASSWORD}"), ("bearer.auth.token", PASSWORD)):
            asks = client(registry.url, properties={name: secret})
            for behaviour in (None, status(401), status(302), hang_up):
                registry.behaviour = behaviour
                with pytest.raises((RegistryUnavailable, UnknownToRegistry)) as raised:
                    asks.schema(SEVEN)
                said += [str(raised.value), repr(raised.value), asks.name]
    basic = "Basic bWU6Z2VoZWltLTdmM2E="
    assert {basic, f"Bearer {PASSWORD}"} == set(registry.authorizations)
    assert all(secret not in text for text in [*said, caplog.text] for secret in (PASSWORD, basic[6:]))


def test_tls_with_an_authority_and_a_client_certificate_of_its_own(tmp_path: Path) -> None:
    """The registry proves who it is, and so do we; without either there is no answer."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(str(ca))
    own = authority.issue_cert("client.invalid")
    own.cert_chain_pems[0].write_to_path(str(certificate))
    own.private_key_pem.write_to_path(str(key))
    trust: dict[str, Property] = {"ssl.ca.location": str(ca)}
    files: dict[str, Property] = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    with serving(Registry({"7": {"schema": TEXT}}), tls=context) as registry:
        assert TEXT == client(registry.url, properties=trust | files).schema(SEVEN).text
        with pytest.raises(RegistryUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            client(registry.url, properties=files).schema(SEVEN)
        with pytest.raises(RegistryUnavailable):
            client(registry.url, properties=trust).schema(SEVEN)


def test_a_proxy_that_is_away_is_an_outage_without_its_password() -> None:
    """The registry cannot be asked, so articles wait."""
    far = client(GOOD, properties={"proxy": f"http://worker:{PASSWORD}@127.0.0.1:1"})
    with pytest.raises(RegistryUnavailable) as caught:
        far.schema(SEVEN)
    assert PASSWORD not in str(caught.value)
