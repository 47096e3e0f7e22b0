"""Single requests of a transaction that are late, or whose reply is lost: what producer epochs protect against."""

from __future__ import annotations

import signal
import time
from typing import ClassVar

from tools.chaos.faults.base import CATCH_S, EXIT_CODES, FENCED, Fault
from tools.chaos.forgeries import OffsetsError, WrongOffsets
from tools.chaos.frames import Api
from tools.chaos.rules import Answered, Delay, DropReply, Hold

_REJOIN_S = 30.0
"""A worker that restarts has its partitions again within this time, even if its old session must end first."""


class LateRequest(Fault):
    """Holds a request and releases it later.

    Mostly the connection is closed at once and the worker repeats the request on a new one; otherwise the worker must notice
    by itself that no reply comes.
    """

    api: ClassVar[Api]

    def choose(self) -> None:
        self.worker, self.nth = self.some_worker(), self.chosen.randrange(1, 4)
        self.hang_up = self.chosen.random() < 0.75
        self.lasts_s = self.chosen.uniform(0.5, 3.0) if self.hang_up else self.chosen.uniform(6.0, 9.0)

    def apply(self) -> None:
        how = "sent again meanwhile" if self.hang_up else "no connection lost"
        self.about = f"{self.worker}, {how}, {self.lasts_s:.1f} s"
        self.hold = Hold(self.of_worker(self.worker, self.api), self.nth, hang_up=self.hang_up)
        self.catch(self.hold)


class LateEndTxn(LateRequest):
    """A late EndTxn ends whichever transaction is open by then (KAFKA-17754), unless the epoch has moved on."""

    name = "EndTxn late"
    api = Api.END_TXN


class LateTxnOffsetCommit(LateRequest):
    """A late TxnOffsetCommit sets the committed offset back, unless the epoch has moved on."""

    name = "TxnOffsetCommit late"
    api = Api.TXN_OFFSET_COMMIT


class LateAddPartitions(LateRequest):
    """A late AddPartitionsToTxn opens a transaction that nobody ends, unless the epoch has moved on."""

    name = "AddPartitionsToTxn late"
    api = Api.ADD_PARTITIONS_TO_TXN


class LateProduce(LateRequest):
    """A Produce request arrives after its transaction's abort, and before the next transaction writes to that broker.

    It opens a transaction that nobody ends, or is committed with the next one (KIP-890), unless the abort had a newer epoch.
    The connection stays open: the worker sends the request once, and gives up.
    """

    name = "Produce late"
    api = Api.PRODUCE

    def choose(self) -> None:
        """Keep the connection; the fault lasts from the new producer on."""
        super().choose()
        self.hang_up, self.lasts_s = False, self.chosen.uniform(0.5, 2.0)

    def apply(self) -> None:
        """Hold the request, and also what the new producer writes."""
        super().apply()
        self.catch(Answered(self.of_worker(self.worker, Api.INIT_PRODUCER_ID)))
        self.inject(Hold(self.of_worker(self.worker, self.api)))

    def heal(self) -> None:
        """Release the late request first."""
        self.inject(answered := Answered(self.of_worker(self.worker, self.api)))
        self.scene.proxy.lift(self.hold)
        answered.caught.wait(CATCH_S)
        super().heal()


class LateInitProducerId(LateRequest):
    """A late InitProducerId takes the transactional id from the worker's own, newer producer: it exits and is restarted.

    A new producer sends it, and the worker makes one after a slow transaction: so the fault makes one slow.
    """

    name = "InitProducerId late"
    api = Api.INIT_PRODUCER_ID
    _slow_s = 0.3

    def choose(self) -> None:
        """Take the first request; there may be no second one."""
        super().choose()
        self.nth = 1

    def apply(self) -> None:
        slow = Delay(self.of_worker(self.worker, Api.END_TXN), self._slow_s)
        self.scene.proxy.apply(slow)
        super().apply()
        self.scene.proxy.lift(slow)


class OffsetFetchWrong(Fault):
    """The broker answers that it does not know the committed offsets, just when partitions are assigned.

    The assignment is caused by a worker that restarts, or by a further one that comes and goes.
    """

    name = "OffsetFetch answered wrongly"
    exit_codes = EXIT_CODES - {FENCED}
    _guest = "guest"
    _stays_s = 3.0

    def choose(self) -> None:
        """Draw the error, how often it comes, and what causes the assignment."""
        self.error, self.times = self.chosen.choice(list(OffsetsError)), self.chosen.choice([1, 1, 3])
        self.how = self.chosen.choice([signal.SIGTERM, signal.SIGKILL, None])
        self.worker = self.some_worker()

    def apply(self) -> None:
        wrong = WrongOffsets(self.of_worker(self.worker, Api.OFFSET_FETCH), self.error, self.times)
        self.inject(wrong)
        how = f"after {self.how.name}" if self.how else "after a guest"
        self.about = f"{self.worker}, {self.error.name}, {self.times} times, {how}"
        if self.how:
            self.slot(self.worker).send(self.how)
        else:
            self.scene.crew.add(self._guest)
            time.sleep(self._stays_s)
            self.scene.crew.remove(self._guest)
        if not wrong.caught.wait(_REJOIN_S):
            self.about += ", which did not come"


class EndTxnReplyDropped(Fault):
    """The transaction is committed, and the worker does not learn of it."""

    name = "EndTxn reply dropped"

    def choose(self) -> None:
        self.worker, self.nth = self.some_worker(), self.chosen.randrange(1, 4)
        self.about = self.worker

    def apply(self) -> None:
        self.catch(self.make())

    def make(self) -> DropReply:
        return DropReply(self.of_worker(self.worker, Api.END_TXN), self.nth)


class EndTxnReplyUnread(EndTxnReplyDropped):
    """The transaction is committed, and the worker is killed before it learns of it; it is restarted at once."""

    name = "EndTxn reply dropped, and kill -9"
    silent_death = True

    def make(self) -> DropReply:
        """The rule also kills the worker, so that no time passes between the two."""
        slot = self.slot(self.worker)
        match = self.of_worker(self.worker, Api.END_TXN)
        return DropReply(match, self.nth, instead=lambda: slot.send(signal.SIGKILL))
