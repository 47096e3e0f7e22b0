"""The versions of records (`enricher.version`). Written from `schemas/README.md`, not from the worker's code."""

from __future__ import annotations

from enricher.operate.verify.headers import Source
from enricher.operate.verify.values import Document

_GENERATION_BITS, _OFFSET_BITS = 12, 43


def belongs_to(version: int, source: Source, document: Document | None) -> bool:
    """Whether a version contains the offset of its source, and the document has no other one."""
    offset = (version >> _GENERATION_BITS) & (2**_OFFSET_BITS - 1)
    return offset == source.offset and (document is None or document.get("version", version) == version)


class VersionOrder:
    """Whether newer inputs of one topic have higher versions, in whatever order their records are read.

    They do if no offset of an epoch is below one of an earlier epoch.
    """

    def __init__(self) -> None:
        self._seen: dict[int, dict[int, tuple[int, int]]] = {}
        """The lowest and the highest source offset of each epoch, by input partition: 256 epochs at most."""

    def keeps(self, version: int, source: Source) -> bool:
        """Take the version of the next record. False if an older input has a higher one, or a newer input a lower one."""
        epoch, offset = version >> (_GENERATION_BITS + _OFFSET_BITS), source.offset
        seen = self._seen.setdefault(source.partition, {})
        lowest, highest = seen.get(epoch, (offset, offset))
        seen[epoch] = min(lowest, offset), max(highest, offset)
        return not any(
            (other < epoch and last > offset) or (other > epoch and first < offset)
            for other, (first, last) in seen.items()
        )
