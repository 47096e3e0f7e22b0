"""Masks passwords, tokens and the like in values of settings before they are shown.

The lists name what may be shown, not what is hidden: a property whose name we do not know may be a mistyped password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from enricher.worker.settings.group import FromFile

MASK = "***"

_ABOUT_SECURITY = """
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location sasl.kerberos.keytab
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.method sasl.oauthbearer.token.endpoint.url sasl.username security.protocol ssl.ca.certificate.stores
    ssl.ca.location ssl.certificate.location ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.key.location ssl.keystore.location ssl.sigalgs.list
"""
_OTHER_GROUPS = """
    acks allow api auto background batch broker check client compression connections consume coordinator debug delivery
    enable fetch group heartbeat linger log max message metadata offset partition partitioner queue queued receive reconnect
    request resolve retries retry session socket statistics sticky topic transaction
"""
_SHOWN_PROPERTIES = frozenset(_ABOUT_SECURITY.split())
"""Properties about identity and encryption that contain no secret."""
_SHOWN_GROUPS = frozenset(_OTHER_GROUPS.split())
"""The first words of librdkafka's other properties; none of them contains a secret."""
_SECRET = re.compile(r"pass|secret|token|credential|private|key|auth|jaas|pem|sasl|ssl|user|cookie|pw", re.IGNORECASE)
"""Words in the names of properties that are masked even in a shown group: librdkafka has none there, so a name with one may
be mistyped."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+._-]*")
"""A URL's scheme. Kafka's may have an underscore: `SASL_SSL://broker:9093`."""
_NEXT_URL = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+._-]*://)")


def shown_text(text: str) -> str:
    """The text without users and passwords of URLs or of `user:password@host`, and without the queries of URLs.

    A URL that cannot be parsed is masked completely: any part of it may be the password.
    """
    if "://" in text:
        return ",".join(map(_shown_url, _NEXT_URL.split(text)))
    before, at, rest = text.rpartition("@")
    return f"{MASK}@{rest}" if at and ":" in before else text


def shown_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of a client, with all values masked except names of files and those that may be shown."""
    return {name if _NAME.fullmatch(name) else MASK: _shown_property(name, value) for name, value in properties.items()}


def _shown_property(name: str, value: Any) -> Any:  # noqa: ANN401  text, a number, true or false, or a file
    if isinstance(value, FromFile):
        return value.model_dump(mode="json")
    known = name.removeprefix("consumer.").removeprefix("producer.")
    in_group = known.partition(".")[0] in _SHOWN_GROUPS and not _SECRET.search(known)
    if known not in _SHOWN_PROPERTIES and not in_group:
        return MASK
    return shown_text(value) if isinstance(value, str) else value


def _shown_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    _before, at, rest = rest.rpartition("@")  # the password may contain any character, also `/` and `@`
    try:
        parts = urlsplit(f"//{rest}")
        where = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        where = None
    if not where or not _SCHEME.fullmatch(scheme):
        return MASK
    more = MASK if parts.query or parts.fragment else ""
    return f"{scheme}://{MASK + '@' if at else ''}{where}{port}{parts.path}{more}"
