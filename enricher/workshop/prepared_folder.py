"""A prepared folder: its manifest, with the source and the digest of the model; its files, copied; its place, replaced."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint
from enricher.worker.inference.graph.int8 import RECIPE_FILE

_OPTIONAL_FILES = ("enricher.json", RECIPE_FILE, "README.md", "LICENSE*", "gate-*.json")
"""Files that are copied if they exist: advice on windows, the recipe of int8, origin and licence, reports."""


def files_of(checkpoint: Checkpoint) -> list[Path]:
    """Configuration, weights or graph, tokenizer, and `_OPTIONAL_FILES`; no other file of the folder."""
    folder = checkpoint.folder
    tokenizer = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    optional = [path for pattern in _OPTIONAL_FILES for path in sorted(folder.glob(pattern)) if path.is_file()]
    return [*checkpoint.files, *tokenizer, *optional]


def copy_files(checkpoint: Checkpoint, folder: Path, on_copy: Callable[[Path], None]) -> None:
    """Copy the files, with links resolved; calls `on_copy` before each. Raises ModelError if the disk is full.

    Every user may read a copy, as far as the umask says: a pod that serves it runs as another user. Libraries save
    weights that only their owner may read.
    """
    for path in files_of(checkpoint):
        target = folder / path.relative_to(checkpoint.folder)
        on_copy(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        except OSError as error:
            message = f"{target} cannot be written: {error.strerror}"
            raise ModelError(message) from error


@contextlib.contextmanager
def replacement_of(out: Path) -> Iterator[Path]:
    """Yield a temporary folder of the same name, which replaces `out` if the body succeeds. Raises ModelError.

    Only an empty folder, or one that was prepared before, is replaced.
    """
    if out.exists() and not ((out / MANIFEST_FILE).is_file() or (out.is_dir() and not any(out.iterdir()))):
        message = f"{out} exists and was not made by `enricher model prepare`: choose another --out"
        raise ModelError(message)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".preparing-", dir=out.parent))
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror}"
        raise ModelError(message) from error
    try:
        # It has its final name already, because a model is named after its folder.
        (aside / out.name).mkdir()
        yield aside / out.name
        _put_in_place(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_in_place(aside: Path, out: Path) -> None:
    try:
        if out.exists():
            out.rename(aside / "before")
        (aside / out.name).rename(out)
    except OSError as error:
        message = f"{out} cannot be replaced: {error.strerror}. Is another `enricher model prepare` writing it?"
        raise ModelError(message) from error


MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1


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


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest. Call it after all other files are written."""
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


def manifest_of(folder: Path) -> Manifest | None:
    """The folder's manifest, if it has one. Raises ModelError for a broken manifest."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return None
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        message = f"{path}: not a manifest: {error}"
        raise ModelError(message) from error
