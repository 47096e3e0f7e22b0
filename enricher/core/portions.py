"""How many records to ask the client for in one call. Pure.

Whatever a call gives is in memory at once, before anybody can look at how large it is: values are copied, and headers,
which take two bytes in the topic, become objects. So a call is small where records are large, and never large.
"""

from __future__ import annotations

from enricher.records import HEADER_BYTES, RawRecord

_MOST = 64
"""Records of one call. The client makes up to 100,000 headers of each (70 bytes in C): 450 MB where all are hostile."""
_CALL_BYTES = 64_000_000
"""Of a call's records, if the largest are as large as they were lately."""


class Portions:
    """Remembers the largest record that came lately."""

    def __init__(self) -> None:
        self._largest_bytes = 1.0

    def of(self, wanted: int) -> int:
        """How many records to ask for where `wanted` may come."""
        return max(1, min(wanted, _MOST, int(_CALL_BYTES / self._largest_bytes)))

    def noted(self, records: list[RawRecord]) -> list[RawRecord]:
        """The records of one call, learned from. What was large counts half with each call that has nothing as large."""
        self._largest_bytes = max(1.0, self._largest_bytes / 2, *map(_cost_bytes, records))
        return records


def _cost_bytes(record: RawRecord) -> int:
    omitted = record.omitted_headers
    return record.size_bytes + (omitted.size_bytes + HEADER_BYTES * omitted.count if omitted else 0)
