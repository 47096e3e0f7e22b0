"""`manifest.json` of a prepared folder: its source, and the digest of every file in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import ModelError

MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1


class FileEntry(BaseModel):
    """The sha256 (hex) and the size of one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    size_bytes: int


class Manifest(BaseModel):
    """The content of the manifest, which `enricher model prepare` writes last."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    source: str = Field(description="The folder or hub id that was given.")
    revision: str | None = Field(description="Commit on the hub; null for a folder.")
    model_digest: str = Field(description="sha256 (hex) of config, weights and tokenizer, as in every record.")
    device: str
    variant: str = Field(description="The variant that precision `auto` takes on the machine where it was prepared.")
    precision: str
    enricher: str
    created_at: str = Field(description="UTC, ISO 8601.")
    files: dict[str, FileEntry] = Field(description="By path within the folder, `/` between its parts.")


def entries_of(folder: Path) -> dict[str, FileEntry]:
    """Every file below `folder` except the manifest."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE)
    return {path.relative_to(folder).as_posix(): _entry(path) for path in paths}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest. Call it after all other files are written."""
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


def problems_of_manifest(folder: Path) -> list[str] | None:
    """The files that are missing or differ; None without a manifest. Raises ModelError for a broken manifest."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return None
    try:
        recorded = Manifest.model_validate_json(path.read_bytes()).files
    except (OSError, ValidationError) as error:
        message = f"{path}: not a manifest: {error}"
        raise ModelError(message) from error
    missing = [f"{name} is missing" for name in recorded if not (folder / name).is_file()]
    differing = [
        f"{name} differs"
        for name, entry in recorded.items()
        if (folder / name).is_file() and _entry(folder / name) != entry
    ]
    return missing + differing


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(sha256=digest, size_bytes=path.stat().st_size)
