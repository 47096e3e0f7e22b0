"""How a registry goes wrong, and what the proxy sends then."""

from __future__ import annotations

import json
from enum import Enum
from typing import NamedTuple

SLOW_S = 2.0
"""How long `SLOW` takes for each answer."""


class Fault(Enum):
    """One way of going wrong. All but the last one mean that the registry is not there, not that a schema is unknown."""

    DOWN = "connections are refused, open ones are cut"
    HANGS = "requests are taken and never answered"
    DRIPS = "an answer comes at one byte in 0.2 s"
    SLOW = "answers are right and take 2 s"
    CUT_OFF = "answers end in the middle"
    ERROR = "500 with an error code of the registry"
    UNAVAILABLE = "503 with a page of a load balancer"
    TOO_MANY = "429 with Retry-After"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    NOT_FOUND_PAGE = "404 with a page of a load balancer, or of a path that does not exist"
    NOT_FOUND_EMPTY = "404 with an empty body that claims to be JSON, as Apicurio answers for unknown paths"
    GARBAGE = "200 with bytes that are no JSON"
    OTHER_JSON = "200 with JSON that is no schema"
    PAGE = "200 with the page of a captive portal"
    REDIRECT = "a redirect to another host's login page"
    REDIRECT_LOOP = "a redirect to itself"
    OTHER_SCHEMA = "another schema than before under the same id"


class Answer(NamedTuple):
    """A whole response."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


_JSON = "application/vnd.schemaregistry.v1+json"
_HTML = "text/html"
_OTHER = {"type": "record", "name": "Other", "fields": [{"name": "other", "type": "long"}]}

ANSWERS = {
    Fault.ERROR: Answer(500, _JSON, b'{"error_code":50001,"message":"Error in the backend data store"}'),
    Fault.UNAVAILABLE: Answer(503, _HTML, b"<html><body>503 Service Unavailable</body></html>"),
    Fault.TOO_MANY: Answer(
        429, _JSON, b'{"error_code":42901,"message":"Too many requests"}', headers=(("Retry-After", "1"),)
    ),
    Fault.UNAUTHORIZED: Answer(
        401, _JSON, b'{"error_code":401,"message":"Unauthorized"}', headers=(("WWW-Authenticate", "Basic"),)
    ),
    Fault.FORBIDDEN: Answer(403, _JSON, b'{"error_code":40301,"message":"User is denied operation Read"}'),
    Fault.NOT_FOUND_PAGE: Answer(404, _HTML, b"<html><body>404 page not found</body></html>"),
    Fault.NOT_FOUND_EMPTY: Answer(404, "application/json", b""),
    Fault.GARBAGE: Answer(200, _JSON, bytes(range(256)) * 4),
    Fault.OTHER_JSON: Answer(200, _JSON, b'[{"schema": 7}, null]'),
    Fault.PAGE: Answer(200, _HTML, b"<html><body>Please log in to this network</body></html>"),
    Fault.REDIRECT: Answer(302, _HTML, b"", headers=(("Location", "http://login.invalid/"),)),
    # With a schema's own path in it, so that a program that takes it for a schema would get a wrong decoder.
    Fault.OTHER_SCHEMA: Answer(200, _JSON, json.dumps({"schema": json.dumps(_OTHER)}).encode()),
}
"""The faults that are one whole answer to every request."""
