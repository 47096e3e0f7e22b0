"""Checks the registry's URLs and credentials at the start. Nothing here connects."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from enricher.errors import SettingsError

_BASIC, _BEARER = "basic.auth.user.info", "bearer.auth.token"
_CA, _CERTIFICATE = "ssl.ca.location", "ssl.certificate.location"
_KEY, _KEY_PASSWORD = "ssl.key.location", "ssl.key.password"
PROPERTIES = (_BASIC, _BEARER, _CA, _CERTIFICATE, _KEY, _KEY_PASSWORD)

Property = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """A registry. `urls` contain no credentials, so they may be logged; they are tried in this order."""

    urls: tuple[str, ...]
    timeout_s: float
    """The bound of one request to one URL, from the look-up of its host to the end of the body."""
    max_schema_bytes: int
    """The bound of a schema with everything that it refers to."""
    authorization: tuple[str | None, ...] = field(default=(), repr=False)
    """The header for each URL."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The URLs, for messages."""
        return ", ".join(self.urls)


def registry_config(
    url: str, properties: Mapping[str, Property], *, timeout_s: float, max_schema_bytes: int
) -> RegistryConfig:
    """Check URLs and properties, and load certificates. Raises SettingsError."""
    if unknown := sorted(properties.keys() - set(PROPERTIES)):
        name = f"'{unknown[0]}'" if re.fullmatch(r"[\w.-]+", unknown[0]) else "a name"  # that may be a value
        message = f"registry.properties: {name} is unknown; there are {', '.join(PROPERTIES)}"
        raise SettingsError(message)
    given = {name: _text(name, value) for name, value in properties.items()}
    if _BASIC in given and _BEARER in given:
        raise SettingsError(f"registry.properties: use either {_BASIC} or {_BEARER}")
    found = [_parse_url(each.strip()) for each in url.split(",") if each.strip()]
    if not found:
        raise SettingsError("registry.url is missing: say where the schema registry is, e.g. https://registry:8081")
    shared = _authorization(given)
    if shared and any(own for _, own in found):
        raise SettingsError("registry.url contains a user, and registry.properties another credential: use one of them")
    return RegistryConfig(
        urls=tuple(address for address, _ in found),
        timeout_s=timeout_s,
        max_schema_bytes=max_schema_bytes,
        authorization=tuple(own or shared for _, own in found),
        tls=_tls(given, wanted=any(address.startswith("https:") for address, _ in found)),
    )


def _text(name: str, value: Property) -> str:
    if not isinstance(value, str) or not value:
        raise SettingsError(f"registry.properties: '{name}' must be a text that is not empty")
    return value


def _parse_url(url: str) -> tuple[str, str | None]:
    """The URL without credentials, and the header that they make. No message repeats the URL: it may have a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SettingsError("registry.url: not a URL, or its port is not a number from 0 to 65535") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise SettingsError("registry.url: a URL must begin with http:// or https:// and name a host")
    if parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError("registry.url: a URL has a query, a fragment, blanks or characters beyond ASCII")
    if "@" in parts.path:  # the beginning of the password would be taken for the host, and the rest be logged
        raise SettingsError("registry.url: write a '/', '?', '#' or '@' in a password as %2F, %3F, %23 or %40")
    where = f"[{host}]" if ":" in host else host
    address = urlunsplit((parts.scheme, where if port is None else f"{where}:{port}", parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return address, None
    return address, _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")


def _authorization(given: Mapping[str, str]) -> str | None:
    if user_info := given.get(_BASIC):
        if ":" not in user_info:
            raise SettingsError(f"registry.properties: '{_BASIC}' must be USER:PASSWORD")
        return _basic(user_info)
    if token := given.get(_BEARER):
        if not token.isascii() or not token.isprintable() or " " in token:
            raise SettingsError(
                f"registry.properties: '{_BEARER}' contains blanks, line ends or characters beyond ASCII"
            )
        return f"Bearer {token}"
    return None


def _basic(user_info: str) -> str:
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


def _tls(given: Mapping[str, str], *, wanted: bool) -> ssl.SSLContext | None:
    files = {name: given[name] for name in (_CA, _CERTIFICATE, _KEY) if name in given}
    for name, path in files.items():
        if not Path(path).is_file():
            raise SettingsError(f"registry.properties: '{name}' refers to {path}, which is not a file")
    if _CERTIFICATE not in given and (_KEY in given or _KEY_PASSWORD in given):
        raise SettingsError(f"registry.properties: '{_KEY}' and '{_KEY_PASSWORD}' need '{_CERTIFICATE}'")
    if not wanted:
        if files:
            raise SettingsError(f"registry.properties: '{next(iter(files))}' is given, but no registry.url is https://")
        return None
    return _tls_context(given)


def _tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    name, authorities = _CA, given.get(_CA)
    try:
        # Without `cafile` it loads the system's certificates, or those of SSL_CERT_FILE and SSL_CERT_DIR.
        context = ssl.create_default_context(cafile=authorities)
        if authorities is None:
            import certifi  # noqa: PLC0415  of the extra `registry`, which was checked before

            # Mozilla's authorities, for images without any.
            context.load_verify_locations(certifi.where())
        if certificate := given.get(_CERTIFICATE):
            name = _CERTIFICATE
            # A callback, because OpenSSL would ask on the terminal for a password that is missing.
            context.load_cert_chain(certificate, given.get(_KEY), lambda: given.get(_KEY_PASSWORD, ""))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        message = f"registry.properties: the file of '{name}', its key or its password cannot be used: {reason}"
        raise SettingsError(message) from None
    return context
