"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table. Cells may not contain a bar or a line break."""
    for row in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(row)} |"
