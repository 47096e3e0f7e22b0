"""How many records to request from the client in one call.

All records of a call are in memory at once, before their size is known: values are copied, and headers, which take two
bytes in the topic, become objects. So a call requests few records, and fewer while records are large.
"""

from __future__ import annotations

from enricher.worker.records import HEADER_BYTES, RawRecord

_MOST = 64
"""Records per call. The client keeps up to 100,000 headers of each (70 bytes in C): 450 MB if all are hostile."""
_CALL_BYTES = 64_000_000
"""Expected size of a call's records, if all are as large as the largest recent one."""


class Portions:
    """Remembers the largest recent record."""

    def __init__(self) -> None:
        self._largest_bytes = 1.0

    def of(self, wanted: int) -> int:
        """How many records to request if `wanted` may come."""
        return max(1, min(wanted, _MOST, int(_CALL_BYTES / self._largest_bytes)))

    def learn_from(self, records: list[RawRecord]) -> list[RawRecord]:
        """Learn from the records of one call and return them. A large record's weight halves with each smaller call."""
        self._largest_bytes = max(1.0, self._largest_bytes / 2, *map(_cost_bytes, records))
        return records


def _cost_bytes(record: RawRecord) -> int:
    omitted = record.omitted_headers
    return record.size_bytes + (omitted.size_bytes + HEADER_BYTES * omitted.count if omitted else 0)
