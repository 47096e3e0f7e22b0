"""The files of a prepared folder: which are copied, and how the folder takes its place. Chooses and checks nothing."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.commands.model.manifest import MANIFEST_FILE
from enricher.errors import ModelError

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint

_BESIDES = ("enricher.json", "README.md", "LICENSE*", "gate-*.json", "gate-*.html")
"""What goes along where it is there: advice on windows, origin and licence, reports."""


def files_of(checkpoint: Checkpoint) -> list[Path]:
    """Config, weights or graph, tokenizer, and what goes along; no other file of the folder."""
    from enricher.inference.checkpoint.folder import TOKENIZER_FILES  # noqa: PLC0415  it imports safetensors

    folder = checkpoint.folder
    tokenizer = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    besides = [path for pattern in _BESIDES for path in sorted(folder.glob(pattern)) if path.is_file()]
    return [folder / "config.json", *_weights(checkpoint), *tokenizer, *besides]


def copied(checkpoint: Checkpoint, folder: Path, copying: Callable[[Path], None]) -> None:
    """Copy those files, links as what they point to; `copying` is told each. Raises ModelError where the disk is full.

    No copy may be read by more people than the file.
    """
    for path in files_of(checkpoint):
        target = folder / path.relative_to(checkpoint.folder)
        copying(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(target.stat().st_mode & (path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR))
        except OSError as error:
            message = f"{target} cannot be written: {error.strerror}"
            raise ModelError(message) from error


@contextlib.contextmanager
def taking_the_place_of(out: Path) -> Iterator[Path]:
    """A folder aside, of the same name; it becomes `out` where all goes well. Raises ModelError.

    Only a folder that is empty or was prepared before is replaced.
    """
    if out.exists() and not ((out / MANIFEST_FILE).is_file() or (out.is_dir() and not any(out.iterdir()))):
        message = f"{out} is there, and was not made by `enricher model prepare`: choose another --out"
        raise ModelError(message)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".preparing-", dir=out.parent))
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror}"
        raise ModelError(message) from error
    try:
        # By its final name: the name of the folder is the name of the model.
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
        message = f"{out} cannot be replaced: {error.strerror}. Is another `enricher model prepare` at work on it?"
        raise ModelError(message) from error


def _weights(checkpoint: Checkpoint) -> list[Path]:
    from enricher.inference.checkpoint.folder import SHARD_INDEX, SINGLE_FILE, is_sharded  # noqa: PLC0415  it imports safetensors
    from enricher.inference.checkpoint.onnx_folder import OnnxModel, external_files, read_graph  # noqa: PLC0415  it imports onnx

    if isinstance(checkpoint, OnnxModel):
        path = checkpoint.onnx_path
        return [path, *(path.parent / name for name in external_files(read_graph(path)))]
    index = checkpoint.folder / SHARD_INDEX
    if not is_sharded(checkpoint.folder):
        return [checkpoint.folder / SINGLE_FILE]
    shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    return [index, *(checkpoint.folder / shard for shard in shards)]
