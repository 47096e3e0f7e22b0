"""GUIDs of schemas, which Confluent's registry has since version 8.0 and Apicurio 3.3.3 has not.

The proxy makes them up from ids, so that Confluent's own serializers can write header ids. What a worker does with the
answer is tested for real; that a registry assigns the GUID is not.
"""

from __future__ import annotations

import json
import uuid

GUID_PATH = "/schemas/guids/"
_BASE = uuid.UUID("5c4e3a00-9d7b-4c11-8e52-000000000000").int


def guid_of(schema_id: int) -> str:
    """The GUID of this id."""
    return str(uuid.UUID(int=_BASE | schema_id))


def id_of(path: str) -> int | None:
    """The id of the GUID in a path; None if it is none of ours."""
    try:
        number = uuid.UUID(path.removeprefix(GUID_PATH).partition("?")[0]).int
    except ValueError:
        return None
    return number ^ _BASE if number >> 32 == _BASE >> 32 else None


def with_guids(body: bytes) -> bytes:
    """An answer that names an id, with the GUID; any other as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("id"), int):
        return body
    return json.dumps({**document, "guid": guid_of(document["id"])}).encode()
