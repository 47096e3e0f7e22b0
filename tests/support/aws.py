"""Amazon's check of a signed request: the signature of version 4, computed from what arrived, by its description."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit

KEY, SECRET, SESSION = "AKIDCANARY51F0A2", "canary-secret-0c51f2", "canary-session-77d1e3"
"""Access key, secret key and session token of the only identity that the stand-ins know."""


def header_signature_is_right(method: str, target: str, headers: Mapping[str, str], body: bytes, scope: str) -> bool:
    """Whether the header `Authorization` is right. `headers`: names in lower case. `scope`: such as `eu-west-1/es`."""
    kind, _, rest = headers.get("authorization", "").partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    key, _, asked = parts.get("Credential", "").partition("/")
    names, date = parts.get("SignedHeaders", "").split(";"), headers.get("x-amz-date", "")
    if kind != "AWS4-HMAC-SHA256" or key != KEY or headers.get("x-amz-security-token") != SESSION:
        return False
    if not {"host", "x-amz-date", "x-amz-security-token"} <= {*names} or asked != f"{date[:8]}/{scope}/aws4_request":
        return False
    url = urlsplit(target)
    pairs = parse_qsl(url.query, keep_blank_values=True)
    signed = {name: headers[name] for name in names}
    made = _signature(method, url.path, pairs, signed, hashlib.sha256(body).hexdigest(), date, asked)
    return hmac.compare_digest(made, parts["Signature"])


def query_signature_is_right(url: str, scope: str) -> bool:
    """Whether a presigned URL is right, apart from `User-Agent`, which is added after the signature."""
    parts = urlsplit(url)
    pairs = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "User-Agent"]
    given = dict(pairs)
    signature, date = given.pop("X-Amz-Signature"), given["X-Amz-Date"]
    asked = f"{date[:8]}/{scope}/aws4_request"
    if given["X-Amz-Credential"] != f"{KEY}/{asked}" or given.get("X-Amz-Security-Token") != SESSION:
        return False
    signed = {"host": parts.netloc}
    assert given["X-Amz-SignedHeaders"] == "host"
    body = hashlib.sha256(b"").hexdigest()
    made = _signature("GET", parts.path, [*given.items()], signed, body, date, asked)
    return hmac.compare_digest(made, signature)


def _signature(
    method: str,
    path: str,
    pairs: list[tuple[str, str]],
    signed: Mapping[str, str],
    body_digest: str,
    date: str,
    scope: str,
) -> str:
    query = "&".join(sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs))
    lines = [method, quote(path or "/", safe="/-_.~"), query]
    lines += [f"{name}:{' '.join(signed[name].split())}" for name in sorted(signed)]
    request = "\n".join([*lines, "", ";".join(sorted(signed)), body_digest])
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()
