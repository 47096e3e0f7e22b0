"""URLs, properties and files of a registry are checked at the start, and no message repeats a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from enricher.errors import SettingsError
from enricher.worker.registry.registry_client import RegistryClient

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


def test_blanks_around_urls_are_nothing() -> None:
    """And neither is a slash at the end."""
    client = RegistryClient(f" {GOOD}/ , https://b ", {}, timeout_s=1.0, max_schema_bytes=1_000)
    assert f"{GOOD}, https://b" == client.name


@pytest.mark.parametrize(
    ("properties", "about"),
    [
        ({"basic.auth.user": SECRET}, "basic.auth.user"),
        ({f"user:{SECRET}": SECRET}, "a name"),
        ({"basic.auth.user.info": SECRET}, "basic.auth.user.info"),
        ({"basic.auth.user.info": f"u:{SECRET}", "bearer.auth.token": SECRET}, "either"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.secret": SECRET}, "bearer.auth"),
        ({"timeout": 5}, "registry.timeout_s"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"ssl.key.location": __file__}, "ssl.certificate.location"),
        ({"ssl.key.password": SECRET}, "ssl.certificate.location"),
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
