"""Single requests of a transaction that are late, or whose answer is lost: what a producer's epoch is there for."""

from __future__ import annotations

import signal
from typing import ClassVar

from nemesis.faults.base import Fault
from nemesis.frames import Api
from nemesis.rules import DropReply, Hold


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
        how = "sent again meanwhile" if self.hang_up else "no connection lost"
        self.about = f"{self.worker}, {how}, {self.lasts_s:.1f} s"

    def apply(self) -> None:
        """Catch it."""
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


class LateInitProducerId(_LateRequest):
    """It takes the epoch from the producer that works by then: a worker fences itself, and has to find out that it did."""

    name = "InitProducerId late"
    api = Api.INIT_PRODUCER_ID
    _start_s = 30.0

    def shorten(self) -> None:
        """Sent twice, which is what matters."""
        self.hang_up, self.lasts_s = True, 2.0

    def apply(self) -> None:
        """Only a producer's first request is one: the worker is stopped, and its successor's is caught."""
        self.hold = Hold(self.of_worker(self.worker, self.api), hang_up=self.hang_up)
        self.scene.proxy.apply(self.hold)
        self.place(self.worker).send(signal.SIGTERM)
        if not self.hold.caught.wait(self._start_s):
            self.about += ", which did not come"


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
