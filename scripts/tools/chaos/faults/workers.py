"""Faults of the workers themselves."""

from __future__ import annotations

import signal
import time
from typing import ClassVar

from confluent_kafka import Producer

from tools.chaos.faults.base import Fault
from tools.chaos.rules import Api, Watch
from tools.chaos.scene import ENGINE_S, TRANSACTION_S
from tools.chaos.worker import POLL_INTERVAL_S
from tools.waiting import wait_until

_PHASES = (
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
    Api.HEARTBEAT,
)
"""The requests in which the signal comes: every step of a transaction, or a heartbeat between transactions."""


class _Signalled(Fault):
    """Sends a signal to a worker while it sends a certain request."""

    number: ClassVar[signal.Signals]

    def choose(self) -> None:
        self.worker, self.api = self.some_worker(), self.chosen.choice(_PHASES)
        self.about = f"{self.worker} in {self.api.name}"

    def apply(self) -> None:
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
        super().choose()
        self.lasts_s = self.chosen.uniform(TRANSACTION_S + 0.5, 12.0)
        self.about += f", {self.lasts_s:.1f} s"

    def heal(self) -> None:
        self.slot(self.worker).send(signal.SIGCONT)


class RebalanceStorm(Fault):
    """A further worker comes and goes several times, stopped or killed."""

    name = "rebalance storm"
    _guest = "guest"

    def choose(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGKILL)
        self.visits = [(self.chosen.uniform(2.0, 3.5), self.chosen.choice(numbers)) for _ in range(4)]
        self.about = ", ".join(f"{seconds:.1f} s {number.name}" for seconds, number in self.visits)

    def apply(self) -> None:
        for seconds, number in self.visits:
            self.scene.crew.add(self._guest)
            time.sleep(seconds)
            self.scene.crew.remove(self._guest, number)


class ModelHangs(Fault):
    """A run of the model takes longer than `max.poll.interval.ms`, sometimes so long that the watchdog ends the worker."""

    name = "worker expelled (model hangs)"

    def choose(self) -> None:
        self.worker = self.some_worker()
        self.hang_s = self.chosen.choice([POLL_INTERVAL_S + 2, ENGINE_S + 10])
        self.about = f"{self.worker}, {self.hang_s:.0f} s"

    def apply(self) -> None:
        asked_s = time.monotonic()
        self.slot(self.worker).tell(f"hang {self.hang_s}")
        gone = wait_until(lambda: bool(self.scene.crew.exits_since(asked_s)), self.hang_s)
        self.about += ", given up by the worker" if gone else ", survived"


class Rival(Fault):
    """Another process takes a worker's transactional id."""

    name = "two of one name"

    def choose(self) -> None:
        self.worker = self.some_worker()
        self.about = self.worker

    def apply(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.scene.cluster.bootstrap_servers,
                "transactional.id": self.scene.transactional_id(self.worker),
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        producer.close()
