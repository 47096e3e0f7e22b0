"""Faults of the workers themselves."""

from __future__ import annotations

import signal
import time
from typing import ClassVar

import psutil
from confluent_kafka import Producer

from tools.chaos.faults.base import EXIT_CODES, Fault
from tools.chaos.frames import Api
from tools.chaos.rules import Cut, Watch
from tools.chaos.scene import ENGINE_S, POLL_INTERVAL_S, SESSION_S, TRANSACTION_S
from tools.chaos.worker import TWO_PROCESSES
from tools.waiting import suspend, wait_until

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


class BrokerAwayAtStart(Fault):
    """Kills a worker; its next process finds no broker for longer than its first tries take."""

    name = "broker away at the start of a worker"
    silent_death = True

    def choose(self) -> None:
        self.worker = self.some_worker()
        self.lasts_s = self.chosen.uniform(14.0, 25.0)
        self.about = f"{self.worker}, {self.lasts_s:.1f} s"

    def apply(self) -> None:
        self.inject(Cut(self.of_worker(self.worker)))
        self.slot(self.worker).send(signal.SIGKILL)


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


class ChildKilled(Fault):
    """SIGKILL for a worker of a guest with two processes, sometimes once it, or both, were frozen and then expelled.

    Partitions of frozen processes must go on within the session timeout and 5 s. The kill ends the guest with its code, once
    the other process has drained or, if it is frozen, was killed; then the guest is restarted as a whole.
    """

    name = "child killed (--processes)"
    silent_death = True
    exit_codes = EXIT_CODES | {128 + signal.SIGKILL}
    _guest = "guest"
    _start_s = 60.0
    _end_s = 60.0
    """Twice the grace of a drain."""

    def choose(self) -> None:
        self.frozen = self.chosen.choice([[], ["guest-0"], ["guest-1"], ["guest-0", "guest-1"]])
        self.about = f"{' and '.join(self.frozen)} frozen before" if self.frozen else "at work"

    def apply(self) -> None:
        """Add the guest, freeze its processes until others have their partitions, kill one, and wait for the end of all."""
        self.slot_of_guest = self.scene.crew.add(self._guest, [TWO_PROCESSES])
        if not self._publishes("guest-0", "guest-1"):
            self.broken.append("the guest did not publish")
            return
        children = self._children()
        victim = next((child for child in children if self._name_of(child) in self.frozen), children[0])
        moving = self.scene.timeline.moving_from_now()
        for child in children:
            if self._name_of(child) in self.frozen:
                suspend(child)
        if self.frozen:
            wait_until(lambda: len(moving.first_s) >= self.scene.partitions, SESSION_S + 5.0, 0.05)
            if len(moving.first_s) < self.scene.partitions:
                self.broken.append("partitions of frozen processes stood still for too long")
        killed_s = time.monotonic()
        victim.kill()
        if not wait_until(lambda: self._ended_since(killed_s), self._end_s):
            self.broken.append("a child's death did not end the guest")

    def heal(self) -> None:
        """Wait until the guest publishes with both processes again; then it leaves."""
        if not self.broken and not self._publishes("guest-0", "guest-1"):
            self.broken.append("the guest did not publish again")
        self.scene.crew.remove(self._guest)

    def _ended_since(self, at_s: float) -> bool:
        exits = self.scene.crew.exits_since(at_s)
        return any(end.name == self._guest and end.code == 128 + signal.SIGKILL for end in exits)

    def _children(self) -> list[psutil.Process]:
        assert self.slot_of_guest.pid
        return psutil.Process(self.slot_of_guest.pid).children()

    @staticmethod
    def _name_of(child: psutil.Process) -> str:
        """The instance name, from the share in its command line (`child 0/2`)."""
        line = child.cmdline()
        return f"guest-{line[line.index('child') + 1][0]}"

    def _publishes(self, *names: str) -> bool:
        """Wait until each of these processes commits a transaction."""
        return self.scene.wait_for_commits([f"enricher-{name}" for name in names], self._start_s)


class ModelHangs(Fault):
    """A run of the model takes longer than `max.poll.interval.ms`, sometimes longer than the worker's own limit."""

    name = "model hangs"

    def choose(self) -> None:
        self.worker = self.some_worker()
        self.hang_s = self.chosen.choice([POLL_INTERVAL_S + 2, ENGINE_S + 10])
        self.about = f"{self.worker}, {self.hang_s:.0f} s"

    def apply(self) -> None:
        asked_s = time.monotonic()
        self.slot(self.worker).tell(f"hang {self.hang_s}")
        gone = wait_until(lambda: bool(self.scene.crew.exits_since(asked_s)), self.hang_s)
        self.about += ", given up by the worker" if gone else ", survived"


class ItemLost(Fault):
    """A window gets lost between engine and loop: its article never finishes unless the worker notices."""

    name = "work item lost"
    _notice_s = 60.0

    def choose(self) -> None:
        self.worker = self.some_worker()
        self.about = self.worker

    def apply(self) -> None:
        asked_s = time.monotonic()
        self.slot(self.worker).tell("lose")
        noticed = wait_until(lambda: bool(self.scene.crew.exits_since(asked_s)), self._notice_s)
        self.about += f", noticed after {time.monotonic() - asked_s:.1f} s" if noticed else ", not noticed"


class Rival(Fault):
    """Another process takes a worker's transactional id."""

    name = "rival with the same transactional id"

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
