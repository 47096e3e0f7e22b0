"""The schemas of articles in Avro, and the registry that workers ask for them, behind a proxy that can go wrong.

The publisher registers schemas past the proxy, so it can write what no worker can read yet.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import count
from urllib.parse import urlsplit

from tools.registry import FaultProxy, Registry, RegistryError
from tools.waiting import Closing

UNKNOWN_IDS = range(2**30, 2**31)
"""Schema ids that the registry has never given."""
_FIELDS = ("id", "title", "body")
_TIMEOUT_S = 60.0


class Schemas(Closing):
    """A registry of its own, and the proxy through which workers ask it."""

    def __init__(self) -> None:
        self._closing = ExitStack()
        self._registry = self._closing.enter_context(Registry())
        self.proxy = self._closing.enter_context(FaultProxy(self._registry.url))
        self._numbers = count()
        self._ids: set[int] = set()
        self._id = 0
        self.renew()

    @property
    def url(self) -> str:
        """The workers' `registry.url`."""
        return self.proxy.url

    def renew(self) -> None:
        """From now on articles are written with a schema that no worker has met."""
        self._id = self._register()

    def framed(self, *texts: str) -> bytes:
        """An article's id, title and body in Avro, behind the id of the present schema."""
        return frame(self._id, *texts)

    def _register(self) -> int:
        fields = [{"name": name, "type": "string"} for name in _FIELDS]
        # Apicurio gives schemas that differ in their documentation only one id.
        schema = {"type": "record", "name": f"Article{next(self._numbers)}", "fields": fields}
        target = urlsplit(self._registry.url)
        connection = HTTPConnection(target.hostname or "", target.port, timeout=_TIMEOUT_S)
        try:
            body = json.dumps({"schema": json.dumps(schema)})
            headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
            connection.request("POST", f"{target.path}/subjects/articles-value/versions", body, headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            raise RegistryError(f"the registry refused the workload's schema: {answer.decode(errors='replace')}")
        schema_id = int(json.loads(answer)["id"])
        if schema_id in self._ids:
            raise RegistryError(f"the registry has given the id {schema_id} before: workers have met it")
        self._ids.add(schema_id)
        return schema_id

    def close(self) -> None:
        self._closing.close()


def frame(schema_id: int, *texts: str) -> bytes:
    """Strings in Avro behind Confluent's prefix."""
    contents = [text.encode() for text in texts]
    return b"\0" + schema_id.to_bytes(4, "big") + b"".join(_length(len(each)) + each for each in contents)


def _length(size_bytes: int) -> bytes:
    """Avro's variable-length zigzag number; a length is never negative."""
    left, written = 2 * size_bytes, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])
