"""The size of bulk requests. It grows while they succeed, and shrinks when the index has too much to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from enricher.indexing.index_documents import Document

_FIRST_SHARE = 4
_GROWTH = 1.25
_LINE_BYTES = 120
"""Bytes of an action's first line besides the id."""


class BulkSize:
    """The most documents and bytes of the next request."""

    def __init__(self, max_documents: int, max_bytes: int) -> None:
        self._max_documents, self._max_bytes = max_documents, float(max_bytes)
        self.documents = max(1, max_documents // _FIRST_SHARE)
        self.bytes = float(max_bytes)

    def take(self, documents: Sequence[Document]) -> Sequence[Document]:
        """The first documents, as many as fit, but at least one."""
        size_bytes, count = 0, 0
        for each in documents[: self.documents]:
            size_bytes += request_bytes(each)
            if count and size_bytes > self.bytes:
                break
            count += 1
        return documents[:count]

    def note_taken(self, taken: int, sent: int) -> None:
        """Note that the index took so many documents of a request, and had too much to do for the rest.

        Each shard takes or refuses its share of a request as a whole. A request of which at least half was taken counts as
        taken, because smaller requests would only be more. Only full requests show that larger ones would be taken too.
        """
        if not taken:
            self.documents = max(1, min(self.documents, sent) // 2)
            return
        if sent >= self.documents and 2 * taken >= sent:
            self.documents = min(self._max_documents, int(self.documents * _GROWTH) + 1)
        self.bytes = min(self._max_bytes, self.bytes * _GROWTH)

    def note_too_large(self, size_bytes: int) -> None:
        """Note that a request of so many bytes is too large for the index."""
        self.bytes = size_bytes / 2
        self._max_bytes = min(self._max_bytes, 0.9 * size_bytes)


def request_bytes(document: Document) -> int:
    """Bytes of a document in a request."""
    return len(document.body or b"") + len(document.id) + _LINE_BYTES
