"""The client of a schema registry with Confluent's API. It blocks; in the worker only the fetcher's thread calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import randrange
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from enricher.worker.articles.schemas import Schema, SchemaRef
from enricher.worker.contracts import SchemaType, is_schema_type
from enricher.worker.registry.config import RegistryConfig
from enricher.worker.registry.http import Json, Requests
from enricher.worker.registry.references import Found, Pointer, resolve
from enricher.worker.registry.registry_errors import (
    RegistryError,
    RegistryUnavailable,
    UnknownToRegistry,
    UnusableSchema,
)

Value = TypeVar("Value")
_UNUSED_IDS = 2**30, 2**31
"""A range of ids that no registry has given yet: registries count from 1, and an id is a signed integer of four bytes."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject, without what its schema refers to."""

    subject: str
    version: int
    id: int
    type: SchemaType
    text: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Whether a schema may be registered. `messages`: the registry's objections; some registries give none."""

    compatible: bool
    messages: tuple[str, ...] = ()


class RegistryClient:
    """A registry over HTTP. Every method that sends a request may raise RegistryUnavailable."""

    def __init__(self, config: RegistryConfig) -> None:
        self._requests = Requests(config)
        self._max_schema_bytes = config.max_schema_bytes
        self.name = config.name
        """The URLs without credentials, for messages."""

    def schema(self, reference: SchemaRef) -> Schema:
        """The schema of this id or GUID, with everything that it refers to.

        Raises UnknownToRegistry or UnusableSchema.
        """
        (found,) = self.schemas([reference])
        if isinstance(found, RegistryError):
            raise found
        return found

    def schemas(self, references: Sequence[SchemaRef]) -> list[Schema | RegistryError]:
        """The result or error of `schema` for each. They are asked for at the same time, their references in turn."""
        assert all(each.in_registry for each in references), "schemas of Glue are in a folder"
        paths = [f"/schemas/{each.kind}s/{_path_part(each.name)}" for each in references]
        answers = self._requests.get_each(paths)
        return [self._schema(each, answer) for each, answer in zip(references, answers, strict=True)]

    def answers_about_ids(self) -> bool:
        """Whether the registry now answers a question about an id, be it with its own error that there is no such id.

        The id is random, so that no registry has it and no cache in front of one. Other paths would prove less: a registry
        that has lost its storage still answers some, and a proxy may forbid them.
        """
        (answer,) = self._requests.get_each([f"/schemas/ids/{randrange(*_UNUSED_IDS)}"])  # noqa: S311  no secret
        return isinstance(answer, UnknownToRegistry) or (isinstance(answer, dict) and "schema" in answer)

    def lookup(self, subject: str, schema: Schema) -> Registered | None:
        """The version of the subject that has this schema; None if the subject is missing or has no such version.

        Raises RefusedByRegistry if the registry cannot read the schema.
        """
        try:
            answer = self._requests.post(f"/subjects/{_path_part(subject)}", _body(schema))
        except UnknownToRegistry:
            return None
        return _parse_registered(answer)

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema and return its id; the same id again if it is there. Raises RefusedByRegistry."""
        answer = self._requests.post(f"/subjects/{_path_part(subject)}/versions", _body(schema))
        return _field(answer, "id", int)

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject; None if there is no such subject."""
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | Literal["latest"]) -> Registered | None:
        """One version of a subject; None if it is not there."""
        try:
            return _parse_registered(self._requests.get(f"/subjects/{_path_part(subject)}/versions/{version}"))
        except UnknownToRegistry:
            return None

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, oldest first; empty if there is no such subject."""
        try:
            return sorted(_list(self._requests.get(f"/subjects/{_path_part(subject)}/versions"), int))
        except UnknownToRegistry:
            return []

    def subjects(self) -> list[str]:
        """All subjects that these credentials may see, sorted."""
        return sorted(_list(self._requests.get("/subjects"), str))

    def compatibility(self, subject: str | None = None) -> str:
        """The compatibility level of a subject, such as BACKWARD; the registry's if it has none or `subject` is None."""
        if subject is not None:
            try:
                answer = self._requests.get(f"/config/{_path_part(subject)}?defaultToGlobal=true")
                return _field(answer, "compatibilityLevel", str)
            except UnknownToRegistry:
                pass
        return _field(self._requests.get("/config"), "compatibilityLevel", str)

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set the level of a subject, which need not exist. Raises RefusedByRegistry."""
        self._requests.put(f"/config/{_path_part(subject)}", {"compatibility": level})

    def check(self, subject: str, schema: Schema) -> Compatibility:
        """Whether the subject's level allows this schema as its next version; it does if there is no such subject.

        Raises RefusedByRegistry if the registry cannot read the schema.
        """
        path = f"/compatibility/subjects/{_path_part(subject)}/versions?verbose=true"
        try:
            answer = self._requests.post(path, _body(schema))
        except UnknownToRegistry:
            return Compatibility(compatible=True)
        messages = answer.get("messages") if isinstance(answer, dict) else None
        reasons = tuple(each for each in messages if isinstance(each, str)) if isinstance(messages, list) else ()
        return Compatibility(_field(answer, "is_compatible", bool), reasons)

    def _schema(self, reference: SchemaRef, answer: Json | RegistryError) -> Schema | RegistryError:
        try:
            if not isinstance(answer, RegistryError):
                return resolve(_parse_found(answer), self._fetch_reference, max_bytes=self._max_schema_bytes)
            if reference.kind == "guid" and isinstance(answer, RegistryUnavailable) and answer.status == 404:
                self._refuse_guid()
        except RegistryError as error:
            return error
        return answer

    def _refuse_guid(self) -> None:
        """Raise UnknownToRegistry if this registry works and merely has no GUIDs: waiting would not change that."""
        _list(self._requests.get("/schemas/types"), str)
        raise UnknownToRegistry("this registry has no GUIDs, only ids; newer ones have both", 404)

    def _fetch_reference(self, pointer: Pointer) -> Found:
        # Schemas may still refer to a version that was deleted softly.
        path = f"/subjects/{_path_part(pointer.subject)}/versions/{pointer.version}?deleted=true"
        return _parse_found(self._requests.get(path))


def _path_part(name: str) -> str:
    return quote(name, safe="")


def _body(schema: Schema) -> dict[str, Json]:
    assert not schema.references, "a reference would need its subject and version"
    return {"schema": schema.text, "schemaType": schema.type}


def _parse_found(answer: Json) -> Found:
    text = _field(answer, "schema", str)
    pointers = answer.get("references") if isinstance(answer, dict) else None
    try:
        return Found(_schema_type(answer), text, tuple(_parse_pointer(each) for each in pointers or ()))
    except (TypeError, KeyError, ValueError):
        raise UnusableSchema("its references are not as the registry's API describes them") from None


def _parse_pointer(reference: Any) -> Pointer:  # noqa: ANN401  any JSON
    name, subject, version = reference["name"], reference["subject"], reference["version"]
    if not (isinstance(name, str) and isinstance(subject, str) and type(version) is int):
        raise TypeError
    return Pointer(name, subject, version)


def _schema_type(answer: Json) -> SchemaType:
    # Registries leave the type out for Avro, which was the first one.
    name = (answer.get("schemaType") if isinstance(answer, dict) else None) or "AVRO"
    if not is_schema_type(name):
        raise UnusableSchema("its type is none of AVRO, PROTOBUF and JSON")
    return name


def _parse_registered(answer: Json) -> Registered:
    return Registered(
        _field(answer, "subject", str),
        _field(answer, "version", int),
        _field(answer, "id", int),
        _schema_type(answer),
        _field(answer, "schema", str),
    )


def _field(answer: Json, name: str, kind: type[Value]) -> Value:
    """A field of the answer. Raises RegistryUnavailable if it is missing: then no registry has answered."""
    value = answer.get(name) if isinstance(answer, dict) else None
    if type(value) is not kind:
        raise RegistryUnavailable(f"the answer has no field '{name}'; is this the URL of a schema registry?")
    return value


def _list(answer: Json, kind: type[Value]) -> list[Value]:
    if not isinstance(answer, list) or any(type(each) is not kind for each in answer):
        raise RegistryUnavailable(
            "the answer is not the list that was asked for; is this the URL of a schema registry?"
        )
    return answer
