"""Lines of files and of standard input, packed or not, one at a time; and what a line's key is.

Never holds a file in memory. Nothing here knows Kafka.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import orjson

from enricher.errors import FatalError, InvalidArticle
from enricher.worker.articles import ArticleReader, DeleteEvents, FieldMapping
from enricher.worker.articles.json_articles import check_id, read_document
from enricher.worker.files import STDIN, Line, read_lines
from enricher.worker.records import Partition, RawRecord

_LINES = Partition("lines", 0)

MAX_LINE_BYTES = 32 * 2**20
"""Twice what our topics take in one message; a longer line is hardly JSON lines, and would have to be held in memory."""


class Inputs:
    """All lines of `paths`, one path after the other; `-` is standard input, what is packed with gzip is unpacked.

    `several_passes`: keep standard input in a temporary file, because it can be read only once. Raises FatalError
    where something cannot be read.
    """

    def __init__(self, paths: Sequence[Path], *, several_passes: bool) -> None:
        self._paths = paths
        self._several_passes = several_passes
        self._kept: BinaryIO | None = None

    def require(self) -> None:
        """Raise FatalError where a file is missing, before anything is sent."""
        for path in self._paths:
            if path != STDIN and (not path.exists() or path.is_dir()):
                raise FatalError(f"there is no file {path}")

    def lines(self) -> Iterator[Line]:
        """Every line that is not blank."""
        for path in self._paths:
            name = "standard input" if path == STDIN else str(path)
            try:
                with self._open(path) as stream:
                    items = read_lines(stream, name, max_line_bytes=MAX_LINE_BYTES)
                    yield from (item for item in items if isinstance(item, Line))
            except OSError as error:
                raise FatalError(f"cannot read {name}: {error}") from error

    @contextmanager
    def _open(self, path: Path) -> Iterator[BinaryIO]:
        if path != STDIN:
            with path.open("rb") as stream:
                yield stream
        elif self._several_passes:
            yield self._keep()
        else:
            yield sys.stdin.buffer

    def _keep(self) -> BinaryIO:
        if self._kept is None:
            self._kept = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  lives as long as the command
            shutil.copyfileobj(sys.stdin.buffer, self._kept)
        self._kept.seek(0)
        return self._kept


def check_lines(inputs: Inputs, reader: ArticleReader) -> int:
    """Count the lines; raises FatalError with the place of the first that is no valid article."""
    count = 0
    for line in inputs.lines():
        try:
            reader.read(_record(line.value))
        except InvalidArticle as error:
            raise FatalError(f"{place_of(line)}: {error}. Nothing was published") from error
        count += 1
    return count


def place_of(line: Line) -> str:
    """The place of a line, for messages."""
    return f"{line.source}, line {line.number + 1}"


def key_and_value(
    value: bytes, round_number: int, mapping: FieldMapping, deletes: DeleteEvents | None = None
) -> tuple[bytes, bytes]:
    """Key and value to publish: the key is the id, also that of the article which the line deletes.

    Raises InvalidArticle for a line without an id that a worker accepts.

    From the second round on the id gets a suffix (`#2`), in key and value, so that keys stay unique; only what is nested
    deeper than 254 levels stays as it is.
    """
    document = read_document(value, sys.maxsize)
    if deletes and deletes.mark(document):
        mapping = deletes.ids
    name = mapping.id_text(document, _record(value))
    if round_number == 1:
        return name.encode(), value
    again = f"{name}#{round_number}"
    check_id(again)
    mapping.put_id(document, again)
    try:
        return again.encode(), orjson.dumps(document)
    except TypeError:  # it reads deeper nesting than it writes
        return name.encode(), value


def _record(value: bytes) -> RawRecord:
    """A line as a record, which has neither key nor headers."""
    return RawRecord(_LINES, 0, None, value)
