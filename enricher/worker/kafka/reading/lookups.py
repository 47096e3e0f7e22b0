"""Asks where assigned partitions begin, until it is known of each.

`start_offsets` answers; this module decides when to ask, and what a missing answer means. The loop waits during each look,
and other partitions with it, so looks are short.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.resume_errors import HiddenOutputs, StillSearching
from enricher.worker.kafka.reading.start_offsets import StartFinders, StartOffset
from enricher.worker.kafka.shared.topicwatch import TopicReplaced, TopicWatch
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger(__name__)

_LOOKUP_S = 0.5
"""Timeout for the committed offsets, which blocks the loop, or the client's callback. Usually they take 2 ms."""
_PAUSE_S = 0.25
_PAUSE_SHARE = 3.0
"""The pause while outputs are searched, as a multiple of one look: other partitions have most of the loop's time."""
_HIDDEN_PAUSE_S = 1.0
"""The pause between two looks at outputs that a transaction hides; each look is a few requests."""
_WARN_EVERY_S = 30.0


class Lookups:
    """Finds the starts of the partitions that wait for theirs.

    `failure`: why the last look found nothing; None if it did not fail.
    """

    def __init__(self, partitions: Partitions, starts: StartFinders, watch: TopicWatch) -> None:
        self._partitions = partitions
        self._starts = starts
        self._watch = watch
        self._next_s = 0.0
        self._warnings = Repeats(period_s=_WARN_EVERY_S)
        self.failure: TransactionTrouble | None = None

    def hurry(self) -> None:
        """Look in the next turn: the answer may have changed."""
        self._next_s = 0.0

    def committed_starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The starts of partitions with a committed offset. Blocks briefly; raises TransactionTrouble without an answer."""
        self._watch.ask()
        self._watch.confirm()
        return self._starts.find(partitions, _LOOKUP_S)

    def look(self, now_s: float) -> Mapping[Partition, StartOffset]:
        """The starts that are known now, if partitions wait for theirs and a look is due. Raises TopicReplaced."""
        if now_s < self._next_s or not (waiting := self._partitions.waiting):
            return {}
        began_s, pause_s = time.monotonic(), _PAUSE_S
        found: Mapping[Partition, StartOffset] = {}
        self.failure = None
        try:
            found = self.committed_starts(waiting)
            if missing := [partition for partition in waiting if partition not in found]:
                found = {**found, **self._determined_starts(missing, now_s)}
        except TopicReplaced:
            raise
        except TransactionTrouble as trouble:
            self._note(trouble, waiting, now_s)
            if isinstance(trouble, StillSearching):
                pause_s = _PAUSE_SHARE * (time.monotonic() - began_s)
                for partition in waiting:
                    self._partitions[partition].progress_s = now_s  # the search has its own bound
        if self._partitions.of(State.HIDDEN):
            pause_s = max(pause_s, _HIDDEN_PAUSE_S)
        self._next_s = time.monotonic() + pause_s
        return found

    def _determined_starts(self, missing: Sequence[Partition], now_s: float) -> Mapping[Partition, StartOffset]:
        """The starts of partitions without a committed offset. Those whose outputs a transaction hides go on waiting."""
        try:
            return self._starts.determine(missing)
        except HiddenOutputs as hidden:
            if self._warnings.is_new(HiddenOutputs):
                log.warning("%s", hidden)
            for partition in hidden.partitions:
                self._partitions[partition].hide(now_s)
            rest = [partition for partition in missing if partition not in hidden.partitions]
        return self._starts.determine(rest) if rest else {}

    def _note(self, trouble: TransactionTrouble, waiting: Sequence[Partition], now_s: float) -> None:
        """Log it as a warning once that has lasted, since nothing of these partitions is read."""
        self.failure = trouble
        lasts_s = self._partitions.unknown_s(now_s)
        lasts = lasts_s >= _WARN_EVERY_S and self._warnings.is_new("start")
        level = logging.WARNING if lasts else logging.DEBUG
        log.log(level, "the start of %s has not been known for %.0f s: %s", names_of(waiting), lasts_s, trouble)
