"""Schemas of AWS Glue's frames, from a folder: `UUID.avsc`, `UUID.proto` or `UUID.json`. Glue itself is not asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from enricher.codec.schemas import Schema
from enricher.registry.errors import RegistryUnavailable, UnknownToRegistry, UnusableSchema

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KINDS: tuple[tuple[str, Literal["AVRO", "PROTOBUF", "JSON"]], ...] = (
    (".avsc", "AVRO"),
    (".proto", "PROTOBUF"),
    (".json", "JSON"),
)
_NOT_FOUND = 404


class GlueFolder:
    """Looks for a file whenever it is asked, so a file that is added later is found."""

    def __init__(self, folder: Path, *, max_schema_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_schema_bytes

    def schema(self, uuid: str) -> Schema:
        """The schema of this UUID, in lower case. Raises UnknownToRegistry, UnusableSchema or RegistryUnavailable."""
        if not _UUID.fullmatch(uuid):
            raise UnknownToRegistry("it is no UUID", _NOT_FOUND)
        for suffix, kind in _KINDS:
            content = self._read(self._folder / f"{uuid}{suffix}")
            if content is not None:
                return Schema(kind, self._text(content))
        raise UnknownToRegistry(f"{self._folder} (registry.glue_folder) has no file of this name", _NOT_FOUND)

    def _read(self, file: Path) -> bytes | None:
        try:
            with file.open("rb") as opened:
                return opened.read(self._max_bytes + 1)
        except FileNotFoundError:
            if self._folder.is_dir():
                return None
            raise RegistryUnavailable(f"{self._folder} (registry.glue_folder) is not there") from None
        except OSError as error:
            raise RegistryUnavailable(f"{file} cannot be read: {error.strerror}") from None

    def _text(self, content: bytes) -> str:
        if len(content) > self._max_bytes:
            raise UnusableSchema("it has more bytes than registry.max_schema_bytes allows")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UnusableSchema("its file is not UTF-8") from None
