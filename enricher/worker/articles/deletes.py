"""Finds the documents that are delete events, as the setting `articles.deleted` says, and what they delete.

Change data capture publishes a delete as a value with an operation. Without this, each would be a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enricher.errors import InvalidArticle
from enricher.worker.articles.pointers import finder, is_unicode, parse_pointer
from enricher.worker.records import Tombstone

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from enricher.worker.articles.mapping import FieldMapping
    from enricher.worker.records import RawRecord

Scalar = str | int | bool


class DeleteEvents:
    """Documents with one of these values at a JSON Pointer are delete events. `ids` finds the ids of what they delete.

    Raises ValueError for a malformed pointer.
    """

    def __init__(self, field: str, values: Collection[Scalar], ids: FieldMapping) -> None:
        self.ids = ids
        self._find = finder(parse_pointer(field))
        # 1 and true are equal to Python, but not to JSON.
        self._values = frozenset((type(value), value) for value in values)

    def mark(self, document: dict[str, Any]) -> bool:
        """Whether a document is a delete event."""
        value = self._find(document)
        return isinstance(value, Scalar) and (type(value), value) in self._values

    def tombstone(
        self, document: dict[str, Any], raw: RawRecord, defaults: Mapping[str, str | None]
    ) -> Tombstone | None:
        """The tombstone of a delete event; None for other documents. `defaults`: see `FieldMapping.article`.

        Every output has its input's key. Only if there is none, the id identifies what is deleted, as it identifies a
        record without a key in an index. Raises InvalidArticle for an event with neither.
        """
        if not self.mark(document):
            return None
        if raw.key:
            return Tombstone()
        try:
            text = self.ids.id_text(document, raw, defaults)
            reason = "" if is_unicode(text) else "id has a lone surrogate, which is not text"
        except InvalidArticle as error:
            reason = str(error)
        if reason:
            raise InvalidArticle(f"the delete event has neither a key nor an id: {reason}")
        return Tombstone(text.encode())
