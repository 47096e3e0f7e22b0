"""Records what becomes visible, and when: a read_committed consumer past the proxy, in a background thread."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tools.reading import Follower, source_of
from tools.waiting import Closing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from tools.reading import InputId

_LOOK_FOR_PARTITIONS_S = 3.0


class Moving:
    """When each input partition first published again: outputs written at `since_s` (epoch) or later."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.first_s: dict[int, float] = {}
        """Seconds since the epoch when the first such output was seen, by input partition."""

    def note(self, partition: int, written_s: float) -> None:
        """An output that was written at `written_s` (epoch) has just been seen."""
        if written_s >= self.since_s and partition not in self.first_s:
            self.first_s[partition] = time.time()


class Timeline(Closing):
    """Reads `topics`. `per_second`: outputs seen, by whole second since `began_s` (monotonic)."""

    def __init__(self, bootstrap_servers: str, topics: list[str]) -> None:
        self.began_s = time.monotonic()
        self.per_second: Counter[int] = Counter()
        self.seen: Counter[InputId] = Counter()
        """How often an output of each input was seen."""
        self._moving = Moving(float("inf"))
        self._follower = Follower(
            bootstrap_servers,
            topics,
            self._note,
            name="timeline",
            look_every_s=_LOOK_FOR_PARTITIONS_S,
            properties={"enable.partition.eof": True},
        )

    @property
    def total(self) -> int:
        return self.seen.total()

    def moving_from_now(self) -> Moving:
        """Record which partitions publish from now on; replaces an earlier call's recording."""
        self._moving = Moving(time.time())
        return self._moving

    def has_seen(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether the reader has reached these offsets."""
        return all(self._follower.ends.get(partition, 0) >= end for partition, end in ends.items())

    def close(self) -> None:
        self._follower.close()

    def _note(self, message: Message) -> None:
        source = source_of(message)
        self.per_second[int(time.monotonic() - self.began_s)] += 1
        self.seen[source] += 1
        self._moving.note(source.partition, message.timestamp()[1] / 1000)
