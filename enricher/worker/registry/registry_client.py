"""A schema registry, asked with Confluent's client: its settings, its errors, its answers.

No error of that client leaves this module, and no message contains a secret. Every request may block.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import randrange
from typing import Any
from urllib.parse import urlsplit

from enricher.distribution import install_command
from enricher.errors import EnricherError, SettingsError
from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.contracts import SchemaType, is_schema_type

_BASIC, _BEARER = "basic.auth.user.info", "bearer.auth.token"
_SOURCE, _CLUSTER = "bearer.auth.credentials.source", "bearer.auth.logical.cluster"
_FILES = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_OURS = "url", "timeout", "max.retries"

Property = str | int | float | bool

MAX_REFERENCES = 100
"""The most references of a schema, each of which is a request. Large Protobuf models of real companies have a few dozen
files."""

_UNUSED_IDS = 2**30, 2**31
"""A range of ids that no registry has given yet: registries count from 1, and an id is a signed integer of four bytes."""
_TOO_MANY_REQUESTS = 429
"""HTTP's status that says nothing about the id: a gateway limits our requests, some of which strangers' records cause."""
_MAX_REASON_CHARS = 200

Foreign = Any
"""Objects of Confluent's client."""


class RegistryClient:
    """Every method that sends a request may raise RegistryUnavailable. For one thread at a time.

    `max_schema_bytes`: the bound of a schema with everything that it refers to. Raises SettingsError.
    """

    def __init__(
        self, url: str, properties: Mapping[str, Property], *, timeout_s: float, max_schema_bytes: int
    ) -> None:
        configuration = client_configuration(url, properties, timeout_s=timeout_s)
        self._library, self._http = _libraries()
        self._max_schema_bytes = max_schema_bytes
        self.name = configuration["url"].replace(",", ", ")
        """The URLs, for messages."""
        try:
            self._client = self._library.SchemaRegistryClient(configuration)
        except self._http.InvalidURL:  # its message may contain the proxy's password
            raise SettingsError("the URL of the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is not right") from None
        except (ValueError, TypeError) as error:
            raise SettingsError(f"registry.properties: {error}") from None
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
            message = f"registry.properties: a certificate, its key or its password cannot be used: {reason}"
            raise SettingsError(message) from None

    def schema(self, reference: SchemaRef) -> Schema:
        """The schema of this id or GUID, with everything that it refers to.

        Raises UnknownToRegistry, also if the registry fails on this id while it answers about another one: whoever wrote the
        record chose the id, and waiting would hold its partition for ever. Raises UnusableSchema.
        """
        try:
            with self._mapping_errors():
                return self._resolve(self._get(reference))
        except RegistryUnavailable as error:
            if error.status in {None, _TOO_MANY_REQUESTS} or not self._answers_about_another_id():
                raise
            raise UnknownToRegistry(f"{error}, although it answers about other ids", 0) from None

    def lookup(self, subject: str, schema: Schema) -> Registered | None:
        """The version of the subject that has this schema; None if the subject is missing or has no such version.

        Raises RefusedByRegistry if the registry cannot read the schema.
        """
        try:
            with self._mapping_errors():
                return _as_registered(self._client.lookup_schema(subject, self._ours(schema)), schema.type)
        except UnknownToRegistry:
            return None

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema and return its id; the same id again if it is there. Raises RefusedByRegistry."""
        with self._mapping_errors():
            return _number(self._client.register_schema(subject, self._ours(schema)))

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject; None if there is no such subject."""
        try:
            with self._mapping_errors():
                found = self._client.get_latest_version(subject)
                return _as_registered(found, _schema_type(found.schema))
        except UnknownToRegistry:
            return None

    def subjects(self) -> list[str]:
        """All subjects that these credentials may see, sorted."""
        with self._mapping_errors():
            return sorted(map(str, self._client.get_subjects()))

    def compatibility(self, subject: str) -> str:
        """The compatibility level of a subject, such as BACKWARD; the registry's if it has none."""
        try:
            with self._mapping_errors():
                return str(self._client.get_compatibility(subject))
        except UnknownToRegistry:
            with self._mapping_errors():
                return str(self._client.get_compatibility())

    def is_compatible(self, subject: str, schema: Schema) -> bool:
        """Whether the subject's level allows this schema as its next version; it does if there is no such subject.

        Raises RefusedByRegistry if the registry cannot read the schema.
        """
        try:
            with self._mapping_errors():
                return bool(self._client.test_compatibility_all_versions(subject, self._ours(schema)))
        except UnknownToRegistry:
            return True

    def _answers_about_another_id(self) -> bool:
        """Whether the registry now says of an id that nobody has that there is no such id.

        The id is random, so that no cache has it. Other paths would prove less: a registry that has lost its storage still
        answers some, and a proxy may forbid them.
        """
        try:
            with self._mapping_errors():
                self._client.get_schema(randrange(*_UNUSED_IDS))  # noqa: S311  no secret
        except UnknownToRegistry:
            return True
        except RegistryError:
            pass
        return False

    def _get(self, reference: SchemaRef) -> Foreign:
        if reference.kind == "guid":
            return self._client.get_schema_by_guid(reference.name)
        return self._client.get_schema(int(reference.name))

    def _resolve(self, root: Foreign) -> Schema:
        references: dict[str, str] = {}
        self._collect(root, references, set(), self._max_schema_bytes - _size_bytes(root))
        named = tuple(NamedSchema(name, text) for name, text in references.items())
        return Schema(_schema_type(root), root.schema_str, named)

    def _collect(self, schema: Foreign, found: dict[str, str], begun: set[str], bytes_left: int) -> int:
        """Add what a schema refers to, dependencies first; returns how many more bytes there may be.

        A schema that was begun is not asked for again, so this ends whatever the registry says. Raises UnusableSchema.
        """
        if bytes_left < 0:
            raise UnusableSchema(f"it has more than {self._max_schema_bytes:,} bytes, its references included")
        for each in schema.references or ():
            if each.name in begun:
                continue
            if len(begun) >= MAX_REFERENCES:
                raise UnusableSchema(f"it refers to more than {MAX_REFERENCES} other schemas")
            begun.add(each.name)
            # Schemas may still refer to a version that was deleted softly.
            text = self._client.get_version(each.subject, each.version, deleted=True).schema
            bytes_left = self._collect(text, found, begun, bytes_left - _size_bytes(text))
            found[each.name] = text.schema_str
        return bytes_left

    def _ours(self, schema: Schema) -> Foreign:
        assert not schema.references, "a reference would need its subject and version"
        return self._library.Schema(schema.text, schema.type)

    @contextmanager
    def _mapping_errors(self) -> Iterator[None]:
        """Raise the client's errors as ours. No message contains a secret, or more than a line of a proxy's page."""
        try:
            yield
        except self._library.SchemaRegistryError as error:
            raise self._meaning(error) from None
        except (self._http.HTTPError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARS]
            raise RegistryUnavailable(f"{self.name} cannot be asked: {reason}") from None
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it makes of an answer that no registry gives
            message = f"{self.name} does not answer as a registry ({type(error).__name__}): is registry.url right?"
            raise RegistryUnavailable(message) from None
        finally:
            # It would keep every schema that any record named, and answers from before a change.
            self._client.clear_caches()

    def _meaning(self, error: Foreign) -> RegistryError:
        status, code = error.http_status_code, error.error_code
        text = str(error.error_message)[:_MAX_REASON_CHARS]
        if type(code) is int and status == 404 and code // 100 == 404:
            return UnknownToRegistry(text, code)
        if type(code) is int and status in {409, 422} and code > 0:
            return RefusedByRegistry(text, status, code)
        return RegistryUnavailable(f"{self.name} answers with HTTP {status}: {text}", status)


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject."""

    version: int
    id: int
    type: SchemaType


def _size_bytes(schema: Foreign) -> int:
    # A lone surrogate cannot be encoded; the compiler of the format refuses it later.
    return len(schema.schema_str.encode(errors="replace"))


def _schema_type(schema: Foreign) -> SchemaType:
    name = schema.schema_type or "AVRO"
    if not is_schema_type(name):
        raise UnusableSchema("its type is none of AVRO, PROTOBUF and JSON")
    return name


def _as_registered(found: Foreign, schema_type: SchemaType) -> Registered:
    return Registered(_number(found.version), _number(found.schema_id), schema_type)


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


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
        raise SettingsError(f"registry.properties: leave out {taken[0]}")
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


def _libraries() -> tuple[Foreign, Foreign]:
    """Confluent's client and the HTTP library that it uses, which only a worker with a registry imports."""
    try:
        import httpx2  # noqa: PLC0415  see above
        from confluent_kafka import schema_registry  # noqa: PLC0415  see above
    except ImportError:
        message = f"a schema registry needs more packages: {install_command('registry')}"
        raise SettingsError(message) from None
    # They log every request and the headers of answers; the fetcher logs what matters.
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return schema_registry, httpx2


class RegistryError(EnricherError):
    """The base of the errors of a registry. No message contains a secret."""


class RegistryUnavailable(RegistryError):
    """No usable answer: no connection, a timeout, 401, 5xx, a page of a proxy. Says nothing about the schema: try again.

    `status`: of HTTP; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnknownToRegistry(RegistryError):
    """The registry answered that there is no such schema, subject or version (404 with its own error code 404xx)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class UnusableSchema(RegistryError):
    """The schema is there, but cannot be used: too large, of an unknown type, or its references do not resolve."""


class RefusedByRegistry(RegistryError):
    """The registry understood a change and refuses it: an incompatible or invalid schema (409, 422)."""

    def __init__(self, message: str, status: int, code: int) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
