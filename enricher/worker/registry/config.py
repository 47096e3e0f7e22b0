"""Checks the registry's URLs and properties at the start, for Confluent's client. Nothing here connects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from enricher.errors import SettingsError

_BASIC, _BEARER = "basic.auth.user.info", "bearer.auth.token"
_SOURCE, _CLUSTER = "bearer.auth.credentials.source", "bearer.auth.logical.cluster"
_FILES = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_OURS = "url", "timeout", "max.retries"

Property = str | int | float | bool


def client_configuration(url: str, properties: Mapping[str, Property], *, timeout_s: float) -> dict[str, Any]:
    """The configuration of Confluent's client. Raises SettingsError, whose message repeats no secret."""
    urls = [each.strip().rstrip("/") for each in url.split(",") if each.strip()]
    if not urls:
        raise SettingsError("registry.url is missing: say where the schema registry is, e.g. https://registry:8081")
    for each in urls:
        _check_url(each)
    if not all(re.fullmatch(r"[a-z.]+", name) for name in properties):  # that may be a value
        raise SettingsError(
            "registry.properties: a name is none of those of Confluent's client, such as ssl.ca.location"
        )
    if taken := [name for name in _OURS if name in properties]:
        raise SettingsError(f"registry.properties: leave out {taken[0]}; registry.url and registry.timeout_s say it")
    if _BASIC in properties and _BEARER in properties:
        raise SettingsError(f"registry.properties: use either {_BASIC} or {_BEARER}")
    for name in _FILES:
        if name in properties and not Path(str(properties[name])).exists():
            raise SettingsError(f"registry.properties: '{name}' refers to {properties[name]}, which is not there")
    # The fetcher tries again itself, so that an end of the worker does not wait for tries.
    configuration: dict[str, Any] = {"url": ",".join(urls), "timeout": timeout_s, "max.retries": 0, **properties}
    if _BEARER in properties:
        configuration = {_SOURCE: "STATIC_TOKEN", _CLUSTER: "", **configuration}
    if "ssl.certificate.location" in properties:  # without a password OpenSSL would ask on the terminal
        configuration = {"ssl.key.password": "", **configuration}
    return configuration


def _check_url(url: str) -> None:
    """No message repeats the URL: it may have a password, and what may be logged has none."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise SettingsError("registry.url: not a URL, or its port is not a number from 0 to 65535") from None
    if "@" in url:
        raise SettingsError(f"registry.url contains a user: put it into {_BASIC} of registry.properties")
    if parts.scheme not in {"http", "https"} or not host:
        raise SettingsError("registry.url: a URL must begin with http:// or https:// and name a host")
    if parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError("registry.url: a URL has a query, a fragment, blanks or characters beyond ASCII")
