"""The client: what each answer of a registry means, within bounds on time and size, and without a word of a secret."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
import trustme
from support.schema_registry import Registry, babble, hang_up, registry_error, serving, silent, status

from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.registry.registry_client import (
    Property,
    RefusedByRegistry,
    Registered,
    RegistryClient,
    RegistryUnavailable,
    UnknownToRegistry,
    UnusableSchema,
)

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


def test_references_are_resolved_with_dependencies_first_and_each_asked_for_once() -> None:
    """Also those of references; two ways to one schema are one request."""
    with serving(Registry({"7": referring(("b", "s/b", 1), ("a", "a", 2))})) as registry:
        registry.versions |= {("s/b", "1"): referring(("a", "a", 2), text="B"), ("a", "2"): referring(text="A")}
        found = client(registry.url).schema(SEVEN)
    assert (NamedSchema("a", "A"), NamedSchema("b", "B")) == found.references
    assert 3 == len(registry.requests)


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ({("b", "1"): referring(text="x" * 10_001)}, "max_schema_bytes"),
        (
            {("b", "1"): referring(*[(f"r{n}", "r", n) for n in range(200)])}
            | {("r", str(n)): referring() for n in range(200)},
            "more than 100",
        ),
    ],
)
def test_references_beyond_the_bounds_make_the_schema_unusable(
    versions: dict[tuple[str, str], dict[str, object]], why: str
) -> None:
    """More than there may be, in bytes or in number."""
    with (
        serving(Registry({"7": referring(("b", "b", 1))}, versions)) as registry,
        pytest.raises(UnusableSchema, match=why),
    ):
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


@pytest.mark.parametrize("number", [301, 302, 307, 400, 401, 403, 405, 409, 429, 500, 502, 503, 504])
def test_every_other_answer_means_unavailable(number: int) -> None:
    """Whatever its body is; a redirect is not followed."""
    with serving() as registry:
        registry.behaviour = status(number)
        with pytest.raises(RegistryUnavailable, match=str(number)):
            client(registry.url).schema(SEVEN)
    assert 2 >= len(registry.requests), "one for the schema, one to hear whether it answers about others"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>sign in</html>", b"[" * 100_000, b"{}", b"[]", b"null", b"5", b'"x"', b'{"schema": 5}', b"\xff\xfe",
        b'{"schema": "x", "references": 5}', b'{"schema": "x", "references": [[]]}', b'{"schema": null, "id": []}',
        b'{"schema": "x", "schemaType": ["AVRO"]}', b'{"schema": "x", "metadata": 5}',
    ],
)  # fmt: skip
def test_what_is_no_registrys_answer_means_unavailable(body: bytes) -> None:
    """A page for signing in comes with 200, too."""
    with serving() as registry:
        registry.behaviour = status(200, body)
        with pytest.raises(RegistryUnavailable, match=r"is registry\.url right"):
            client(registry.url).schema(SEVEN)


def test_garbage_instead_of_http_means_unavailable() -> None:
    """A broker's port, for instance."""
    with serving() as registry:
        registry.behaviour = babble
        with pytest.raises(RegistryUnavailable, match="cannot be asked"):
            client(registry.url).schema(SEVEN)


def test_nobody_there_means_unavailable() -> None:
    """The connection is refused."""
    with serving() as registry:
        gone = registry.url
    with pytest.raises(RegistryUnavailable, match="cannot be asked"):
        client(gone).schema(SEVEN)


def test_a_registry_that_says_nothing_is_unavailable_after_the_timeout() -> None:
    """The thread goes on then."""
    with serving() as registry:
        registry.behaviour = silent
        with pytest.raises(RegistryUnavailable, match="ReadTimeout"):
            client(registry.url, timeout_s=0.3).schema(SEVEN)


def test_a_schema_that_is_too_large_is_unusable_even_if_its_answer_is_not() -> None:
    """The limit counts the schema's bytes."""
    with serving(Registry({"7": {"schema": "ä" * 5_001}})) as registry:
        with pytest.raises(UnusableSchema, match="max_schema_bytes"):
            client(registry.url).schema(SEVEN)
        registry.schemas["7"] = {"schema": "ä" * 5_000}
        assert 5_000 == len(client(registry.url).schema(SEVEN).text)


def test_an_unknown_type_is_unusable() -> None:
    """The registry may have plug-ins that we do not."""
    with (
        serving(Registry({"7": {"schema": "x", "schemaType": "XML"}})) as registry,
        pytest.raises(UnusableSchema, match="type"),
    ):
        client(registry.url).schema(SEVEN)


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


def test_subjects_levels_and_checks() -> None:
    """What the commands ask."""
    schema = Schema("AVRO", TEXT)
    with serving() as registry:
        registry.levels["own"] = "FULL"
        asks = client(registry.url)
        assert (None, None) == (asks.latest("s/x"), asks.lookup("s/x", schema))
        assert 17 == asks.register("s/x", schema)
        assert Registered(1, 17, "AVRO") == asks.latest("s/x") == asks.lookup("s/x", schema)
        assert ["s/x"] == asks.subjects()
        assert ("FULL", "BACKWARD") == (asks.compatibility("own"), asks.compatibility("x"))
        assert [True, False] == [asks.is_compatible("s/x", each) for each in (schema, Schema("AVRO", "incompatible"))]
        asks.set_compatibility("s/x", "FULL_TRANSITIVE")
        assert "PUT" == registry.requests[-1][1]
        with pytest.raises(RefusedByRegistry, match="Invalid schema"):
            asks.register("s/x", Schema("AVRO", "invalid"))
        with pytest.raises(RefusedByRegistry) as raised:
            asks.register("s/x", Schema("AVRO", "incompatible"))
    assert 409 == raised.value.status
