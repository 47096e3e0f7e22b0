"""Requests to a registry over HTTP, and what each answer means. Only this module knows the HTTP library.

Confluent's own client is not used: it reads a body of any size, repeats bodies in its errors, and its timeout bounds one
read, not the request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.worker.registry.config import RegistryConfig
from enricher.worker.registry.registry_errors import (
    RefusedByRegistry,
    RegistryError,
    RegistryUnavailable,
    UnknownToRegistry,
    UnusableSchema,
)

Json = Any
"""A parsed JSON text."""
Client = Any
"""The library's client, for one event loop."""

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_REGISTRY_MEDIA_TYPES = "application/vnd.schemaregistry"
"""The beginning of media types that only registries answer with, never a proxy."""
_ERROR_BYTES = 65_536
"""The most that is read of the body of an error."""
_MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    media_type: str
    body: bytes
    complete: bool
    """False if the body has more bytes than were read."""


class Requests:
    """Sends each request to one URL after the other until one gives an answer. For one thread at a time.

    No connection outlives a call: there are few calls, and a host name may lead to another registry the next time.
    """

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._http = _library()
        # The library would make one for each request. Without https:// URLs it is not used.
        self._tls = config.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # In JSON a quotation mark of the schema takes two bytes.
        self._max_bytes = 2 * config.max_schema_bytes + _ERROR_BYTES
        self._first = 0
        """The URL that answered last is tried first: one that does not answer costs a timeout."""

    def get(self, path: str) -> Json:
        """Raises RegistryUnavailable, UnknownToRegistry, or UnusableSchema if the body is too large."""
        return self._request("GET", path)

    def get_each(self, paths: Sequence[str]) -> list[Json | RegistryError]:
        """The result or error of `get` for each path. All are requested at the same time."""
        return self._request_each("GET", paths)

    def post(self, path: str, body: Mapping[str, Json]) -> Json:
        """Raises what `get` raises, and RefusedByRegistry."""
        return self._request("POST", path, orjson.dumps(body))

    def put(self, path: str, body: Mapping[str, Json]) -> Json:
        """Raises what `post` raises."""
        return self._request("PUT", path, orjson.dumps(body))

    def _request(self, method: str, path: str, body: bytes | None = None) -> Json:
        (result,) = self._request_each(method, [path], body)
        if isinstance(result, RegistryError):
            raise result
        return result

    def _request_each(self, method: str, paths: Sequence[str], body: bytes | None = None) -> list[Json | RegistryError]:
        # Not `asyncio.run`, which would wait for a look-up of a host name that was given up.
        loop = _LookupLoop()
        try:
            return loop.run_until_complete(self._results(method, paths, body))
        finally:
            loop.close()

    async def _results(self, method: str, paths: Sequence[str], body: bytes | None) -> list[Json | RegistryError]:
        try:
            client = self._client()
        except (ValueError, ImportError, self._http.InvalidURL) as error:
            # Our own URLs were checked at the start. The message may contain the proxy's password.
            message = f"cannot be asked: {type(error).__name__}; is the URL in HTTPS_PROXY right?"
            return [RegistryUnavailable(message) for _ in paths]
        async with client:
            return await asyncio.gather(*(self._result(client, method, path, body) for path in paths))

    def _client(self) -> Client:
        # A proxy of the environment cannot read TLS. With plain HTTP it would get our credentials.
        return self._http.AsyncClient(
            verify=self._tls,
            timeout=None,
            follow_redirects=False,
            trust_env=any(url.startswith("https:") for url in self._config.urls),
            mounts={"http://": None},
        )

    async def _result(self, client: Client, method: str, path: str, body: bytes | None) -> Json | RegistryError:
        reasons, count, first, status = [], len(self._config.urls), self._first, None
        for index in ((first + turn) % count for turn in range(count)):
            try:
                result = _meaning(await self._ask(client, index, method, path, body))
            except RegistryUnavailable as error:
                status = error.status
                reasons.append(f"{self._config.urls[index]} {error}")
            except (UnknownToRegistry, RefusedByRegistry, UnusableSchema) as error:
                self._first = index
                return error
            else:
                self._first = index
                return result
        return RegistryUnavailable("; ".join(reasons), status)

    async def _ask(self, client: Client, index: int, method: str, path: str, body: bytes | None) -> _Answer:
        """One request, bounded as a whole, so that a server that sends a byte now and then cannot hold us."""
        limit_s = self._config.timeout_s
        try:
            return await asyncio.wait_for(self._exchange(client, index, method, path, body), limit_s)
        except TimeoutError:
            raise RegistryUnavailable(f"has not answered within {limit_s:g} s") from None
        except self._http.HTTPError as error:
            raise RegistryUnavailable(f"cannot be reached: {_reason(error)}") from None
        except OSError as error:
            raise RegistryUnavailable(f"cannot be asked: {_reason(error)}") from None
        except (ValueError, ImportError, self._http.InvalidURL) as error:
            raise RegistryUnavailable(f"cannot be asked: {type(error).__name__}") from None

    async def _exchange(self, client: Client, index: int, method: str, path: str, body: bytes | None) -> _Answer:
        config = self._config
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = _MEDIA_TYPE
        if authorization := config.authorization[index]:
            headers["Authorization"] = authorization
        url = config.urls[index] + path
        async with client.stream(method, url, content=body, headers=headers) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise RegistryUnavailable("answers in compressed form, although it was asked not to")
            limit = self._max_bytes if response.status_code == 200 else _ERROR_BYTES
            media_type = response.headers.get("Content-Type", "")
            read = bytearray()
            async for chunk in response.aiter_raw(65_536):
                read += chunk
                if len(read) > limit:
                    return _Answer(response.status_code, media_type, b"", complete=False)
            return _Answer(response.status_code, media_type, bytes(read), complete=True)


class _LookupLoop(asyncio.SelectorEventLoop):
    """Looks hosts up in daemon threads. Asyncio would wait for its own threads at the end, and a resolver may hang."""

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:  # noqa: ANN401  as in asyncio
        """Return what `socket.getaddrinfo` returns."""
        found: asyncio.Future[Any] = self.create_future()

        def tell(result: object, error: OSError | None) -> None:
            if found.cancelled():
                return
            if error is None:
                found.set_result(result)
            else:
                found.set_exception(error)

        def look_up() -> None:
            result, error = None, None
            try:
                result = socket.getaddrinfo(host, port, **hints)
            except OSError as failure:
                error = failure
            with suppress(RuntimeError):  # the request was given up, and its loop is closed
                self.call_soon_threadsafe(tell, result, error)

        threading.Thread(target=look_up, name="schema-lookup", daemon=True).start()
        return await found


def _library() -> Any:  # noqa: ANN401  a module
    try:
        import httpx2  # noqa: PLC0415  of the extra, and only needed with a registry
    except ImportError:
        message = f"a schema registry needs more packages: {install_command('registry')}"
        raise SettingsError(message) from None
    # They log every request and the headers of answers; the fetcher logs what matters.
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return httpx2


def _meaning(answer: _Answer) -> Json:
    status = answer.status
    if status == 200:
        if not answer.complete:
            raise UnusableSchema("its size is more than registry.max_schema_bytes allows")
        return _parse(answer)
    if status in {404, 409, 422}:
        _raise_refusal(status, answer.body)
    if 300 <= status < 400:
        raise RegistryUnavailable(f"redirects elsewhere (HTTP {status}): registry.url must name the registry", status)
    if status in {401, 403}:
        code, text = _registry_error(answer.body)
        own = "" if code is None else f"; in its own words: {code} {text or ''}".rstrip()
        raise RegistryUnavailable(f"refuses our credentials or rights (HTTP {status}{own})", status)
    raise RegistryUnavailable(f"answers with HTTP {status}", status)


def _parse(answer: _Answer) -> Json:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        if answer.media_type.startswith(_REGISTRY_MEDIA_TYPES) and _is_lenient_json(answer.body):
            # A lone surrogate in a schema's text, for instance: asking again would give the same.
            raise UnusableSchema("the registry answers with JSON that is not Unicode") from None
        raise RegistryUnavailable("answers with something that is not JSON") from None


def _is_lenient_json(body: bytes) -> bool:
    """Whether Python's own parser, which accepts more, reads it to the end: then it was neither cut short nor garbage."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _raise_refusal(status: int, body: bytes) -> NoReturn:
    """Raise the registry's own refusal; RegistryUnavailable for the answer of a proxy, or to a path that it lacks."""
    code, text = _registry_error(body)
    if code is not None:
        message = text or f"HTTP {status}"
        if status == 404 and code // 100 == 404:
            raise UnknownToRegistry(message, code)
        if status != 404:
            raise RefusedByRegistry(message, status, code)
    message = (
        f"answers with HTTP {status}, but not as a registry does: is the path of registry.url right, and does this "
        "registry know the request (GUIDs need a recent one)?"
    )
    raise RegistryUnavailable(message, status)


def _registry_error(body: bytes) -> tuple[int | None, str | None]:
    """The error code and the message of a registry's own error; None for what is missing or not a registry's."""
    try:
        error = orjson.loads(body)
    except orjson.JSONDecodeError:
        error = None
    code, text = (error.get("error_code"), error.get("message")) if isinstance(error, dict) else (None, None)
    return code if type(code) is int else None, text[:_MAX_REASON_CHARS] if isinstance(text, str) else None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARS] if str(error) else type(error).__name__
