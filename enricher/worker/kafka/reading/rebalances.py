"""The consumer's rebalance callbacks: they tell the assignment and the listener.

An exception must not leave a callback, so it is kept, and `check` raises it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.reading.assignment import Assignment
from enricher.worker.kafka.shared.metadata import ours
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of

log = logging.getLogger(__name__)

_QUIET_S = 2.0
"""Without a rebalance for this long, the next one is taken for the first of two, which are at most a second apart."""
_PER_WINDOW, _WINDOW_S = 3, 30.0
"""How often a member joins again by itself: with slow members, rebalances may seem to be the first again and again."""

_Callback = Callable[[Any, list[TopicPartition]], None]


class Rebalances:
    """Callbacks of one consumer. They run inside its `consume` and `close`, so in the loop's thread."""

    def __init__(
        self, assignment: Assignment, listener: PartitionListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._assignment = assignment
        self._listener = listener
        self._raised: Exception | None = None
        self._removed: set[Partition] = set()
        """Partitions that were revoked or lost in this turn of the loop."""
        self._over = False
        self._clock = clock
        self._changed_s = -math.inf
        """When the last callback came."""
        self._joining = False
        """Whether the next rebalance is our own doing."""
        self._joined_s = deque([-math.inf] * _PER_WINDOW, _PER_WINDOW)
        """When this member joined again last."""
        self._topics: list[str] = []
        self._callbacks: dict[str, _Callback] = {
            "on_assign": self._callback(self._add),
            "on_revoke": self._callback(partial(self._remove, listener.revoked)),
            "on_lost": self._callback(partial(self._remove, listener.lost)),
        }

    def subscribe(self, consumer: Consumer, topics: Sequence[str]) -> None:
        """Join the group. Raises the client's errors."""
        self._topics = [*topics]
        consumer.subscribe(self._topics, **self._callbacks)

    def begin_turn(self) -> None:
        """The loop has handled everything that came before."""
        self._removed.clear()

    def check(self) -> None:
        """Raise the first exception of a callback, once."""
        if self._raised:
            raised, self._raised = self._raised, None
            raise raised

    def end(self, partitions: Sequence[Partition]) -> None:
        """Ignore further callbacks: the consumer is given up, and these partitions are lost with it."""
        self._over = True
        if partitions:
            self._listener.lost(partitions)

    # ---- inside

    def _callback(self, handle: _Callback) -> _Callback:
        def callback(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if self._over:
                return
            try:
                handle(consumer, partitions)
            except Exception as error:  # noqa: BLE001  raised again by check()
                self._raised = self._raised or error  # the first may be fatal, and the cause of the later ones

        return callback

    def _add(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        first = self._is_first()
        # A client that gets a subscription while it is closed aborts the process.
        if first and not partitions and not self._assignment.leaving:
            self._join_again(consumer)
        self._assignment.add(partitions)
        added = [ours(tp) for tp in partitions]
        if back := self._removed.intersection(added):
            message = f"{names_of(sorted(back))} left and came back within one poll: their records may be mixed up"
            self._raised = self._raised or TransactionTrouble(message)
        self._listener.assigned(added)

    def _remove(
        self,
        tell: Callable[[Sequence[Partition]], None],
        _consumer: Consumer,
        partitions: list[TopicPartition],
    ) -> None:
        removed = [ours(tp) for tp in partitions]
        self._is_first()
        try:
            tell(removed)  # it makes a last transaction, and asks what the assignment knows of them
        finally:
            self._assignment.remove(removed)
            self._removed.update(removed)

    def _is_first(self) -> bool:
        """Whether this rebalance is the first for a while, and not our own doing. Notes it."""
        now_s = self._clock()
        first = now_s - self._changed_s >= _QUIET_S and now_s - self._joined_s[0] >= _WINDOW_S and not self._joining
        self._changed_s, self._joining = now_s, False
        return first

    def _join_again(self, consumer: Consumer) -> None:
        """This member got nothing and gave up nothing: take part in the second rebalance at once.

        A partition moves in two rebalances. Its owner gives it up after the first one and joins the second at once; until
        that is over the partition stands still. Left alone, the others, newcomers as well as members that keep what they
        have, hear of the second one from a heartbeat, and librdkafka lets them join no earlier than a second after the first
        (`rkcg_join_intvl`). A subscription inside the callback, before the assignment, is applied right after it and ends
        that wait. Where nothing moves it costs one more rebalance, so it is done once for all rebalances in a row.
        """
        self._joining = True
        self._joined_s.append(self._changed_s)
        try:
            consumer.subscribe(self._topics, **self._callbacks)
        except KafkaException as exception:  # it still joins, a second later
            log.info("joining the second rebalance later: %s", exception)
