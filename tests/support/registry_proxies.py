"""Proxies in front of a registry that have what Apicurio lacks: GUIDs of schemas, and credentials.

Confluent's registry has GUIDs since version 8.0. The proxy makes them up from ids, so that Confluent's own serializers can
write header ids. What a worker does with the answer is tested for real; that a registry assigns the GUID is not.
"""

from __future__ import annotations

import json
import uuid

from support.fault_proxy import ANSWERS, Answer, Fault, FaultProxy, Handler

AUTHORIZATION = "Basic dXNlcjpwYXNz"
"""The header of `user` with the password `pass`."""
_GUID_PATH = "/schemas/guids/"
_UNKNOWN_GUID = Answer(404, "application/json", b'{"error_code":40403,"message":"Schema not found"}')
_BASE = uuid.UUID("5c4e3a00-9d7b-4c11-8e52-000000000000").int


def guid_of(schema_id: int) -> str:
    """The GUID of this id."""
    return str(uuid.UUID(int=_BASE | schema_id))


def _id_of(path: str) -> int | None:
    """The id of the GUID in a path; None if it is none of ours."""
    try:
        number = uuid.UUID(path.removeprefix(_GUID_PATH).partition("?")[0]).int
    except ValueError:
        return None
    return number ^ _BASE if number >> 32 == _BASE >> 32 else None


def _with_guids(body: bytes) -> bytes:
    """An answer that names an id, with the GUID; any other as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("id"), int):
        return body
    return json.dumps({**document, "guid": guid_of(document["id"])}).encode()


class _GuidHandler(Handler):
    def passed_on(self, path: str, content: bytes) -> Answer:
        """As for an id, with the GUID in the answer."""
        if path.startswith(_GUID_PATH):
            number = _id_of(path)
            if number is None:
                return _UNKNOWN_GUID
            path = f"/schemas/ids/{number}"
        answer = super().passed_on(path, content)
        return Answer(answer.status, answer.content_type, _with_guids(answer.body), answer.headers)


class GuidProxy(FaultProxy):
    """A proxy that also adds GUIDs."""

    handler = _GuidHandler


class _GuardedHandler(Handler):
    def passed_on(self, path: str, content: bytes) -> Answer:
        """Only with the credentials."""
        known = self.headers.get("Authorization") == AUTHORIZATION
        return super().passed_on(path, content) if known else ANSWERS[Fault.UNAUTHORIZED]


class GuardedProxy(FaultProxy):
    """A proxy that answers who does not send `AUTHORIZATION` with 401."""

    handler = _GuardedHandler
