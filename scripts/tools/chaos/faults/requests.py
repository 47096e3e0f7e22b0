"""Single requests of a transaction that are late, or whose answer is lost: what a producer's epoch is there for."""

from __future__ import annotations

import signal
import time
from typing import ClassVar

from tools.chaos.faults.base import CATCH_S, EXIT_CODES, FENCED, Fault
from tools.chaos.forgeries import OffsetsError, WrongOffsets
from tools.chaos.frames import Api
from tools.chaos.rules import Answered, Delay, DropReply, Hold

_REJOIN_S = 30.0
"""A worker that ends and comes back has its partitions again within this, also where its session must end first."""


class _LateRequest(Fault):
    """A request is held back and released later.

    Mostly its connection is lost at once and the worker sends it again on a new one; else the worker has to find out by
    itself that no answer comes.
    """

    api: ClassVar[Api]

    def choose(self) -> None:
        """Whose, which one, and for how long."""
        self.worker, self.nth = self.some_worker(), self.chosen.randrange(1, 4)
        self.hang_up = self.chosen.random() < 0.75
        self.lasts_s = self.chosen.uniform(0.5, 3.0) if self.hang_up else self.chosen.uniform(6.0, 9.0)

    def apply(self) -> None:
        """Catch it."""
        how = "sent again meanwhile" if self.hang_up else "no connection lost"
        self.about = f"{self.worker}, {how}, {self.lasts_s:.1f} s"
        self.hold = Hold(self.of_worker(self.worker, self.api), self.nth, hang_up=self.hang_up)
        self.catch(self.hold)

    def heal(self) -> None:
        """Let it go."""
        self.scene.proxy.lift(self.hold)


class LateEndTxn(_LateRequest):
    """It ends whichever transaction is open by then (KAFKA-17754), unless the epoch has moved on."""

    name = "EndTxn late"
    api = Api.END_TXN


class LateTxnOffsetCommit(_LateRequest):
    """It takes the committed offset back, unless the epoch has moved on."""

    name = "TxnOffsetCommit late"
    api = Api.TXN_OFFSET_COMMIT


class LateAddPartitions(_LateRequest):
    """It opens a transaction that nobody knows of, unless the epoch has moved on."""

    name = "AddPartitionsToTxn late"
    api = Api.ADD_PARTITIONS_TO_TXN


class LateProduce(_LateRequest):
    """It comes behind the abort of its transaction, and before the next one writes to that broker.

    It opens a transaction that nobody knows of, or is committed with the next one (KIP-890), unless the abort had a newer
    epoch. No connection is lost: the worker sends it once, and gives up.
    """

    name = "Produce late"
    api = Api.PRODUCE

    def choose(self) -> None:
        """It lasts from the new producer on."""
        super().choose()
        self.hang_up, self.lasts_s = False, self.chosen.uniform(0.5, 2.0)

    def apply(self) -> None:
        """Catch it, and hold back what the new producer writes."""
        super().apply()
        self.catch(Answered(self.of_worker(self.worker, Api.INIT_PRODUCER_ID)))
        self.next = Hold(self.of_worker(self.worker, self.api))
        self.scene.proxy.apply(self.next)

    def heal(self) -> None:
        """Let it go first."""
        answered = Answered(self.of_worker(self.worker, self.api))
        self.scene.proxy.apply(answered)
        super().heal()
        answered.caught.wait(CATCH_S)
        self.scene.proxy.lift(self.next, answered)


class LateInitProducerId(_LateRequest):
    """It takes the transactional id from the worker's own, newer producer; there is no rival.

    It is sent by a new producer, and the worker makes one after a slow transaction: so this makes one slow.
    """

    name = "InitProducerId late"
    api = Api.INIT_PRODUCER_ID
    exit_codes = EXIT_CODES - {FENCED}
    _slow_s = 0.3

    def choose(self) -> None:
        """The first one: of more there might be none."""
        super().choose()
        self.nth = 1

    def shorten(self) -> None:
        """Only one that is sent again takes the id from anybody."""
        super().shorten()
        self.hang_up = True

    def apply(self) -> None:
        """Catch it."""
        slow = Delay(self.of_worker(self.worker, Api.END_TXN), self._slow_s)
        self.scene.proxy.apply(slow)
        super().apply()
        self.scene.proxy.lift(slow)


class OffsetFetchWrong(Fault):
    """The broker does not know the committed offsets at the moment when partitions are assigned, and says so.

    What brings the assignment about is a worker that ends and comes back, or a further one that comes and goes.
    """

    name = "OffsetFetch answered wrongly"
    exit_codes = EXIT_CODES - {FENCED}
    _guest = "guest"
    _stays_s = 3.0

    def choose(self) -> None:
        """Which error, how often, and what makes the assignment."""
        self.error, self.times = self.chosen.choice(list(OffsetsError)), self.chosen.choice([1, 1, 3])
        self.how = self.chosen.choice([signal.SIGTERM, signal.SIGKILL, None])
        self.worker = self.some_worker()

    def shorten(self) -> None:
        """The quickest."""
        self.times, self.how = 1, signal.SIGTERM

    def apply(self) -> None:
        """Answer the next one wrongly, and make somebody ask."""
        match = self.of_worker(self.worker, Api.OFFSET_FETCH)
        self.rule = WrongOffsets(match, self.error, self.times)
        self.scene.proxy.apply(self.rule)
        how = f"after {self.how.name}" if self.how else "after a guest"
        self.about = f"{self.worker}, {self.error.name}, {self.times} times, {how}"
        if self.how:
            self.place(self.worker).send(self.how)
        else:
            self.scene.crew.add(self._guest)
            time.sleep(self._stays_s)
            self.scene.crew.remove(self._guest)
        if not self.rule.caught.wait(_REJOIN_S):
            self.about += ", which did not come"

    def heal(self) -> None:
        """No more of it."""
        self.scene.proxy.lift(self.rule)


class EndTxnReplyDropped(Fault):
    """The transaction is committed, and the worker is not told."""

    name = "EndTxn reply dropped"

    def choose(self) -> None:
        """Whose, which one."""
        self.worker, self.nth = self.some_worker(), self.chosen.randrange(1, 4)
        self.about = self.worker

    def apply(self) -> None:
        """Swallow it."""
        self.catch(self.make())

    def make(self) -> DropReply:
        """The rule."""
        self.drop = DropReply(self.of_worker(self.worker, Api.END_TXN), self.nth)
        return self.drop

    def heal(self) -> None:
        """No more of it."""
        self.scene.proxy.lift(self.drop)


class EndTxnReplyUnread(EndTxnReplyDropped):
    """The transaction is committed, and the worker is killed before it can know; it is started again at once."""

    name = "EndTxn reply dropped, and kill -9"
    silent_death = True

    def make(self) -> DropReply:
        """The rule, with the death in it: there is no moment between the two."""
        place = self.place(self.worker)
        match = self.of_worker(self.worker, Api.END_TXN)
        self.drop = DropReply(match, self.nth, instead=lambda: place.send(signal.SIGKILL))
        return self.drop
