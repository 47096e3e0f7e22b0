"""Lines of files and of standard input, packed or not, one at a time; and what a line's key is.

Never holds a file in memory. Nothing here knows Kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from enricher.errors import FatalError
from enricher.worker.articles import DeleteEvents, FieldMapping
from enricher.worker.articles.formats import read_document
from enricher.worker.files import STDIN, Line, read_lines
from enricher.worker.records import Partition, RawRecord

_LINES = Partition("lines", 0)

MAX_LINE_BYTES = 32 * 2**20
"""Twice what our topics take in one message; a longer line is hardly JSON lines, and would have to be held in memory."""


def require_files(paths: Sequence[Path]) -> None:
    """Raise FatalError where a file is missing, before anything is sent."""
    for path in paths:
        if path != STDIN and (not path.exists() or path.is_dir()):
            raise FatalError(f"there is no file {path}")


def lines_in(paths: Sequence[Path]) -> Iterator[Line]:
    """Every line that is not blank, one path after the other; what is packed with gzip is unpacked. Raises FatalError."""
    for path in paths:
        name = "standard input" if path == STDIN else str(path)
        try:
            with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as stream:
                items = read_lines(stream, name, max_line_bytes=MAX_LINE_BYTES)
                yield from (item for item in items if isinstance(item, Line))
        except OSError as error:
            raise FatalError(f"cannot read {name}: {error}") from error


def place_of(line: Line) -> str:
    """The place of a line, for messages."""
    return f"{line.source}, line {line.number + 1}"


def key_of(value: bytes, mapping: FieldMapping, deletes: DeleteEvents | None = None) -> bytes:
    """The key to publish a line under: its id, also that of the article which it deletes.

    Raises InvalidArticle for a line without an id that a worker accepts.
    """
    document = read_document(value, sys.maxsize)
    if deletes and deletes.mark(document):
        mapping = deletes.ids
    # A line as a record, which has neither key nor headers.
    return mapping.id_text(document, RawRecord(_LINES, 0, None, value)).encode()
