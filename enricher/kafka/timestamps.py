"""Which timestamps can be meant. Pure: the time is an argument.

Publishers write what they like into a record's timestamp: 0, seconds instead of milliseconds, a clock that was never set.
An age that is told by such a one is decades, or below zero for ever, and calls for workers, or for nobody where somebody
should come. It counts as unknown, like that of a record without one.
"""

from __future__ import annotations

EARLIEST_S = 946_684_800.0
"""2000-01-01: older than Kafka, so that an archive that is published with the times of its articles is believed, mostly.
Seconds taken for milliseconds give January 1970."""
AHEAD_S = 86_400.0
"""A clock may be wrong, or in another time zone, by so much; microseconds taken for milliseconds are millennia ahead."""


def plausible_timestamp_s(timestamp_s: float, now_s: float) -> float | None:
    """The timestamp, both in seconds since the epoch; None where it cannot be meant."""
    return timestamp_s if EARLIEST_S <= timestamp_s <= now_s + AHEAD_S else None
