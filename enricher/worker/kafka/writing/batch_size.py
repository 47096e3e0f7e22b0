"""How large the producer's batches may be: smaller for a while after the broker refused one of several records.

The broker compares `max.message.bytes` of a topic with a whole batch. If the worker may not read that setting, or it was
lowered a moment ago, a batch of good records can exceed it. Then batches get smaller, down to one record each, and larger
again later. The client sends a record that is larger than its batch size alone. Time is an argument.
"""

from __future__ import annotations

import math

from enricher.worker.rules.pauses import doubling_pause_s

ONE_RECORD_BYTES = 1
"""With this batch size every batch holds one record."""

_FACTOR = 8
"""From 1 MB to one record each, the broker refuses at most four batches."""
_SMALLEST_BYTES = 512
"""Two records never fit: our headers alone take more than half of it."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 3600.0
"""The pause between a refused batch and the next larger ones. It doubles each time that larger ones are refused again, which
costs a recovery, and begins again at the first after the longest."""


class BatchSize:
    """The limit of batches beside the topics' own. It bounds itself: a limit only grows after a transaction succeeded."""

    def __init__(self) -> None:
        self._limit_bytes: int | None = None
        self._used_bytes = 0
        self._refusals = 1
        """How many times in a row larger batches were refused, the first time included."""
        self._larger_at_s = math.inf
        self._grown_at_s: float | None = None

    @property
    def one_record(self) -> bool:
        """True if each batch of the present producer holds one record."""
        return self._used_bytes == ONE_RECORD_BYTES

    def below(self, allowed_bytes: int) -> bool:
        """Whether only the topics limited the batches of the present producer, and allow larger ones by now."""
        return self._limit_bytes is None and self._used_bytes < allowed_bytes

    def next_batch_bytes(self, allowed_bytes: int) -> int:
        """The batch size of the next producer, where settings and topics allow `allowed_bytes`."""
        if self._limit_bytes is not None and self._limit_bytes >= allowed_bytes:
            self._limit_bytes, self._larger_at_s = None, math.inf
        self._used_bytes = min(allowed_bytes, self._limit_bytes or allowed_bytes)
        return self._used_bytes

    def note_refusal(self, size_bytes: int, now_s: float) -> None:
        """Note that the broker refused a batch of several records, which took at most `size_bytes` together."""
        if self._grown_at_s is not None:
            lately = now_s - self._grown_at_s < _LONGEST_PAUSE_S
            self._refusals = self._refusals + 1 if lately else 1
            self._grown_at_s = None
        smaller_bytes = min(self._used_bytes, size_bytes) // _FACTOR
        self._limit_bytes = smaller_bytes if smaller_bytes >= _SMALLEST_BYTES else ONE_RECORD_BYTES
        self._larger_at_s = now_s + self._pause_s

    @property
    def _pause_s(self) -> float:
        return doubling_pause_s(self._refusals, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)

    def grew(self, now_s: float) -> bool:
        """Allow larger batches if it is time; returns whether the next producer may send larger ones.

        Call it after a transaction succeeded.
        """
        if self._limit_bytes is None or now_s < self._larger_at_s:
            return False
        self._limit_bytes = max(self._limit_bytes, _SMALLEST_BYTES) * _FACTOR
        self._larger_at_s = now_s + self._pause_s
        self._grown_at_s = now_s
        return True
