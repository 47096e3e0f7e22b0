"""Schemas on disk: copies of a registry's, and those of AWS Glue, which are never fetched.

A worker that restarts while the registry is away can still read records of the schemas that it has seen.

By the contract of registries, an id means one schema for ever, so the first copy counts for as long as it is kept. If a
registry was emptied, or another one answers at its URL, the fetcher finds the difference and logs it; the way out is to
delete the folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson

from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.contracts import SchemaType, is_schema_type
from enricher.worker.registry.registry_errors import RegistryUnavailable, UnknownToRegistry, UnusableSchema
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_NAME = re.compile(r"-?[0-9a-f][0-9a-f-]{0,63}")
_OVERHEAD_BYTES = 65_536
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TYPES_BY_SUFFIX: dict[str, SchemaType] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_NOT_FOUND = 404


class SchemaStore:
    """A folder for each registry, in `cache_dir`. Files are replaced as a whole, and carry a digest.

    Errors of the disk are logged, never raised: then nothing is kept. Several processes may use a folder at once; the
    methods are for one thread.
    """

    def __init__(self, cache_dir: Path, registry: str, *, max_schema_bytes: int) -> None:
        self.folder = cache_dir / hashlib.sha256(registry.encode()).hexdigest()[:16]
        # JSON writes a quotation mark with two bytes.
        self._max_bytes = 2 * max_schema_bytes + _OVERHEAD_BYTES
        self._complaints = Repeats()

    def find(self, reference: SchemaRef) -> Schema | None:
        """The schema kept by this reference; those of AWS Glue are not kept."""
        file = self._file(reference)
        return None if file is None else self._read(file, _schema)

    def keep(self, reference: SchemaRef, schema: Schema) -> Schema:
        """Keep a schema, and return the one that counts: another process may have kept one meanwhile."""
        file = self._file(reference)
        if file is None:
            return schema
        if kept := self._read(file, _schema):
            return kept
        named = [[each.name, each.text] for each in schema.references]
        self._write(file, {"type": schema.type, "text": schema.text, "references": named})
        return schema

    def id_of(self, subject: str, schema: Schema) -> int | None:
        """The id that was kept for our own schema of a subject."""
        return self._read(self._id_file(subject, schema), _id)

    def keep_id(self, subject: str, schema: Schema, schema_id: int) -> None:
        """Keep the id of our own schema of a subject; it replaces another one."""
        if self.id_of(subject, schema) != schema_id:
            self._write(self._id_file(subject, schema), schema_id)

    def _file(self, reference: SchemaRef) -> Path | None:
        # The name comes from a record: nothing but digits may become part of a path.
        if not reference.in_registry or not _NAME.fullmatch(reference.name):
            return None
        return self.folder / f"{reference.kind}-{reference.name}.json"

    def _id_file(self, subject: str, schema: Schema) -> Path:
        digest = hashlib.sha256(orjson.dumps([subject, schema.type, schema.text])).hexdigest()
        return self.folder / f"subject-{digest}.json"

    def _read(self, file: Path, parse: Callable[[Any], Value]) -> Value | None:
        try:
            content = _content(file, self._max_bytes)
        except OSError as error:
            self._complain("read", error)
            return None
        if content is None:
            return None
        digest, _, body = content.partition(b"\n")
        if len(content) <= self._max_bytes and digest == _digest(body):
            with suppress(orjson.JSONDecodeError, TypeError, ValueError, KeyError):
                return parse(orjson.loads(body))
        log.warning("%s is damaged and not used; it is replaced when the registry answers", file)
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return None

    def _write(self, file: Path, content: object) -> None:
        try:
            body = orjson.dumps(content)
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as opened:
                    opened.write(_digest(body) + b"\n" + body)
                Path(temporary).replace(file)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except (OSError, TypeError) as error:  # orjson: a lone surrogate in a text
            self._complain("written", error)

    def _complain(self, what: str, error: OSError | TypeError) -> None:
        """Log once for each reason: without the folder the worker works, but not through a restart."""
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        if self._complaints.is_new((what, reason)):
            log.warning("a schema in %s (registry.cache_dir) cannot be %s: %s", self.folder, what, reason)


class GlueFolder:
    """A folder with files `UUID.avsc`, `UUID.proto` or `UUID.json`, named as AWS Glue's frames name their schemas.

    A file that is added later is found: the folder is looked at each time.
    """

    def __init__(self, folder: Path, *, max_schema_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_schema_bytes

    def schema(self, uuid: str) -> Schema:
        """The schema of this UUID, in lower case. Raises UnknownToRegistry, UnusableSchema or RegistryUnavailable."""
        if not _UUID.fullmatch(uuid):
            raise UnknownToRegistry("it is not a UUID", _NOT_FOUND)
        for suffix, schema_type in _TYPES_BY_SUFFIX.items():
            file = self._folder / f"{uuid}{suffix}"
            try:
                content = _content(file, self._max_bytes)
            except OSError as error:
                raise RegistryUnavailable(f"{file} cannot be read: {error.strerror}") from None
            if content is not None:
                return Schema(schema_type, self._text(content))
        if not self._folder.is_dir():
            raise RegistryUnavailable(f"{self._folder} (registry.glue_folder) is not there")
        raise UnknownToRegistry(f"{self._folder} (registry.glue_folder) has no file of this name", _NOT_FOUND)

    def _text(self, content: bytes) -> str:
        if len(content) > self._max_bytes:
            raise UnusableSchema("it has more bytes than registry.max_schema_bytes allows")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UnusableSchema("its file is not UTF-8") from None


def _content(file: Path, max_bytes: int) -> bytes | None:
    """The content of a file, at most one byte more than `max_bytes`; None if there is no such file. Raises OSError."""
    try:
        with file.open("rb") as opened:
            return opened.read(max_bytes + 1)
    except FileNotFoundError:
        return None


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _schema(content: Any) -> Schema:  # noqa: ANN401  any JSON
    schema_type, text, references = content["type"], content["text"], content["references"]
    if not is_schema_type(schema_type) or not isinstance(text, str):
        raise ValueError
    return Schema(schema_type, text, tuple(NamedSchema(name, each) for name, each in references))


def _id(content: Any) -> int:  # noqa: ANN401  any JSON
    if type(content) is not int:
        raise ValueError
    return content
