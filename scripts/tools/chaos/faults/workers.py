"""Faults of the workers themselves."""

from __future__ import annotations

import signal
import time
from typing import ClassVar

from confluent_kafka import Producer

from tools.chaos.faults.base import Fault
from tools.chaos.frames import Api
from tools.chaos.rules import Cut, Watch
from tools.chaos.scene import ENGINE_S, POLL_INTERVAL_S, TRANSACTION_S
from tools.waiting import wait_until

_PHASES = (
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
    Api.HEARTBEAT,
)
"""What a worker is sending when the signal comes: every step of a transaction, or a heartbeat between transactions."""


class _Signalled(Fault):
    """Sends a signal to a worker while it sends a certain request."""

    number: ClassVar[signal.Signals]

    def choose(self) -> None:
        """Draw the worker and the request."""
        self.worker, self.api = self.some_worker(), self.chosen.choice(_PHASES)
        self.about = f"{self.worker} in {self.api.name}"

    def apply(self) -> None:
        """Wait for the request, then send the signal."""
        self.catch(watch := Watch(self.of_worker(self.worker, self.api)))
        self.slot(self.worker).send(self.number)
        self.scene.proxy.lift(watch)


class WorkerKilled(_Signalled):
    """SIGKILL; the worker is restarted at once."""

    name = "worker killed (kill -9)"
    silent_death = True
    number = signal.SIGKILL


class WorkerStopped(_Signalled):
    """SIGTERM, sometimes followed by another one while the new process starts."""

    name = "worker stopped (SIGTERM)"
    number = signal.SIGTERM

    def choose(self) -> None:
        """Draw whether there is a second signal, and how long after the end of the first process."""
        super().choose()
        self.again_s = self.chosen.choice([None, self.chosen.uniform(0.6, 3.0)])
        if self.again_s:
            self.about += f", again {self.again_s:.1f} s after its end"

    def apply(self) -> None:
        """Send one or two signals."""
        asked_s = time.monotonic()
        super().apply()
        wait_until(lambda: any(end.name == self.worker for end in self.scene.crew.exits_since(asked_s)), 30)
        if self.again_s:
            time.sleep(self.again_s)
            self.slot(self.worker).send(self.number)


class WorkerPaused(_Signalled):
    """SIGSTOP for longer than the transaction timeout, mostly also than the session timeout; then SIGCONT."""

    name = "worker paused (SIGSTOP)"
    number = signal.SIGSTOP

    def choose(self) -> None:
        """Draw for how long."""
        super().choose()
        self.lasts_s = self.chosen.uniform(TRANSACTION_S + 0.5, 12.0)
        self.about += f", {self.lasts_s:.1f} s"

    def shorten(self) -> None:
        """Keep it longer than the transaction timeout."""
        self.lasts_s = TRANSACTION_S + 0.5

    def heal(self) -> None:
        """Send SIGCONT."""
        self.slot(self.worker).send(signal.SIGCONT)


class BrokerAwayAtStart(Fault):
    """Kills a worker; its next process finds no broker for longer than its first tries take."""

    name = "broker away at the start of a worker"
    silent_death = True

    def choose(self) -> None:
        """Draw the worker, and for how long."""
        self.worker = self.some_worker()
        self.lasts_s = self.chosen.uniform(14.0, 25.0)
        self.about = f"{self.worker}, {self.lasts_s:.1f} s"

    def shorten(self) -> None:
        """Keep it longer than a request may take."""
        self.lasts_s = 12.0

    def apply(self) -> None:
        """Cut this worker off from the brokers, then kill it."""
        self.cut = Cut(self.of_worker(self.worker))
        self.scene.proxy.apply(self.cut)
        self.slot(self.worker).send(signal.SIGKILL)

    def heal(self) -> None:
        """Let it reach the brokers again."""
        self.scene.proxy.lift(self.cut)


class RebalanceStorm(Fault):
    """A further worker comes and goes several times, stopped or killed."""

    name = "rebalance storm"
    _guest = "guest"

    def choose(self) -> None:
        """Draw the visits: how long each lasts, and which signal ends it."""
        numbers = (signal.SIGTERM, signal.SIGKILL)
        self.visits = [(self.chosen.uniform(2.0, 3.5), self.chosen.choice(numbers)) for _ in range(4)]
        self.about = ", ".join(f"{seconds:.1f} s {number.name}" for seconds, number in self.visits)

    def shorten(self) -> None:
        """Make one visit for each signal."""
        self.visits = [(2.0, signal.SIGTERM), (2.0, signal.SIGKILL)]

    def apply(self) -> None:
        """Make all visits."""
        for seconds, number in self.visits:
            self.scene.crew.add(self._guest)
            time.sleep(seconds)
            self.scene.crew.remove(self._guest, number)


class ModelHangs(Fault):
    """A run of the model takes longer than `max.poll.interval.ms`, sometimes longer than the worker's own limit."""

    name = "model hangs"

    def choose(self) -> None:
        """Draw the worker, and for how long."""
        self.worker = self.some_worker()
        self.hang_s = self.chosen.choice([POLL_INTERVAL_S + 2, ENGINE_S + 10])
        self.about = f"{self.worker}, {self.hang_s:.0f} s"

    def shorten(self) -> None:
        """Choose a duration that the worker survives."""
        self.hang_s = POLL_INTERVAL_S + 1

    def apply(self) -> None:
        """Let the model hang until the run returns or the worker gives up."""
        asked_s = time.monotonic()
        self.slot(self.worker).tell(f"hang {self.hang_s}")
        gone = wait_until(lambda: bool(self.scene.crew.exits_since(asked_s)), self.hang_s)
        self.about += ", given up by the worker" if gone else ", survived"


class ItemLost(Fault):
    """A window gets lost between engine and loop: its article never finishes unless the worker notices."""

    name = "work item lost"
    _notice_s = 60.0

    def choose(self) -> None:
        """Draw the worker."""
        self.worker = self.some_worker()
        self.about = self.worker

    def apply(self) -> None:
        """Lose a window and wait until the worker exits because of it."""
        asked_s = time.monotonic()
        self.slot(self.worker).tell("lose")
        noticed = wait_until(lambda: bool(self.scene.crew.exits_since(asked_s)), self._notice_s)
        self.about += f", noticed after {time.monotonic() - asked_s:.1f} s" if noticed else ", not noticed"


class Rival(Fault):
    """Another process takes a worker's transactional id."""

    name = "rival with the same transactional id"

    def choose(self) -> None:
        """Draw the worker."""
        self.worker = self.some_worker()
        self.about = self.worker

    def apply(self) -> None:
        """Initialise a producer with the id, then close it."""
        producer = Producer(
            {
                "bootstrap.servers": self.scene.cluster.bootstrap_servers,
                "transactional.id": self.scene.transactional_id(self.worker),
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        producer.close()
