"""URLs, properties and files of a registry are checked at the start, and no message repeats a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from enricher.errors import SettingsError
from enricher.worker.registry.config import PROPERTIES, registry_config

SECRET = "geheim"
GOOD = "http://registry:8081"


def refusal(url: str, properties: dict[str, str | int | float | bool]) -> str:
    """The message of a configuration that is refused."""
    with pytest.raises(SettingsError) as raised:
        registry_config(url, properties, timeout_s=1.0, max_schema_bytes=1_000)
    return str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "", " , ", "registry:8081", "ftp://registry", "http://", f"http://u:{SECRET}@", f"http://u:{SECRET}@host:99999",
        f"http://u:{SECRET}@host:port", f"http://u:{SECRET}@[::1", f"http://host/?token={SECRET}", f"http://host/#{SECRET}",
        f"http://host/{SECRET} ", f"http://ho st/{SECRET}", f"http://hoßt/{SECRET}", f"{GOOD},mock://{SECRET}",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_right_is_refused_without_repeating_it(url: str) -> None:
    """It may contain a password."""
    if url == f"http://host/{SECRET} ":
        registry_config(url, {}, timeout_s=1.0, max_schema_bytes=1_000)  # blanks around URLs are nothing
        return
    message = refusal(url, {})
    assert "registry.url" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("properties", "about"),
    [
        ({"basic.auth.user": SECRET}, "'basic.auth.user' is unknown"),
        ({"basic.auth.user.info": SECRET}, "USER:PASSWORD"),
        ({"basic.auth.user.info": ""}, "not empty"),
        ({"basic.auth.user.info": 5}, "must be a text"),
        ({"basic.auth.user.info": f"u:{SECRET}", "bearer.auth.token": SECRET}, "either"),
        ({"bearer.auth.token": f"{SECRET}\r\nX-Other: 1"}, "line ends"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"ssl.key.location": __file__}, "need 'ssl.certificate.location'"),
        ({"ssl.key.password": SECRET}, "need 'ssl.certificate.location'"),
        ({"ssl.ca.location": __file__}, "no registry.url is https"),
    ],
)
def test_properties_that_cannot_be_right_are_refused(
    properties: dict[str, str | int | float | bool], about: str
) -> None:
    """The message names the property and what is there instead, and no value."""
    message = refusal(GOOD, properties)
    assert about in message
    assert SECRET not in message


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_is_no_certificate_is_refused_at_the_start(name: str, tmp_path: Path) -> None:
    """Not with the first request."""
    (tmp_path / "no.pem").write_text("nothing of the kind", "ascii")
    assert name in refusal("https://registry", {name: str(tmp_path / "no.pem")})


def test_credentials_are_in_the_url_or_in_a_property_and_never_in_both() -> None:
    """Each URL keeps its own; what may be logged has none."""
    assert "use one of them" in refusal(f"http://u:{SECRET}@host", {"bearer.auth.token": SECRET})
    config = registry_config(f"http://u:{SECRET}@a:1/x/, https://b", {}, timeout_s=1.0, max_schema_bytes=1_000)
    assert ("http://a:1/x", "https://b") == config.urls
    assert config.authorization[0] is not None
    assert config.authorization[1] is None
    assert SECRET not in repr(config)


def test_an_unknown_property_is_answered_with_those_that_there_are() -> None:
    """All six."""
    message = refusal(GOOD, {"timeout": 5})
    assert all(name in message for name in PROPERTIES)
