"""Tries all promises in parallel, within a time limit, and deletes what the trials created, however they end."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from enricher.errors import EnricherError
from enricher.operate.trials.clients import Clients, Outcome
from enricher.operate.trials.promises import PROMISES, Promise, Result
from enricher.operate.trials.topics import TrialTopics
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.errors import our_error
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_LIMIT_S = 45.0
"""The limit for all trials together. The slowest takes about 15 s: it waits for a timeout of 5 s and a scan every 10 s."""
_STOPPING_S = 5.0
_LEAST_PARTITIONS = 2  # two members of one group, each with a partition
_FOREIGN = re.compile(r"[^a-zA-Z0-9._-]")
_MAX_PREFIX_CHARS = 150  # Kafka's names of topics have 249 characters at most


class Trials:
    """Creates a topic with a partition for each promise on entry, and deletes everything that was created on exit.

    Entry raises BrokerError if the topic cannot be created. `left_behind`: what could not be deleted.
    """

    def __init__(self, config: KafkaConfig, promises: Sequence[Promise] = PROMISES) -> None:
        self._config = config
        self._promises = promises
        self._run = uuid.uuid4().hex[:8]
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._topics = TrialTopics(config)
        self.left_behind: list[str] = []

    @staticmethod
    def prefix_of(config: KafkaConfig) -> str:
        """The prefix of the names of all topics and groups of trials, for granting rights."""
        return f"{_FOREIGN.sub('-', config.group_id)[:_MAX_PREFIX_CHARS]}-doctor-"

    @property
    def topic(self) -> str:
        """The topic that the trials share. Its name is the prefix of everything that this run creates."""
        return f"{self.prefix_of(self._config)}{self._run}"

    def results(self, limit_s: float = _LIMIT_S) -> Iterator[Result]:
        """Try all, each in a thread. Yields each result as soon as it is known, the last after at most `limit_s`."""
        finished: queue.SimpleQueue[Result] = queue.SimpleQueue()
        missing = {promise.name: promise for promise in self._promises}
        began_s, deadline = time.monotonic(), Deadline(limit_s)
        for number, promise in enumerate(self._promises):
            self._start(promise, number, finished)
        while missing:
            try:
                result = finished.get(timeout=deadline.left_s())
            except queue.Empty:
                break
            del missing[result.promise.name]
            yield result
        for promise in missing.values():
            yield Result(promise, Outcome(None, f"not finished after {limit_s:.0f} s"), time.monotonic() - began_s)

    def __enter__(self) -> Self:
        try:
            self._topics.make(self.topic, max(_LEAST_PARTITIONS, len(self._promises)))
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            log.warning("stopped early: deleting the topics and groups that begin with '%s'", self.topic)
        self._stop.set()
        deadline = Deadline(_STOPPING_S)
        for thread in filter(threading.Thread.is_alive, self._threads):  # a signal may come before one has started
            thread.join(deadline.left_s())
        self._clean_up()

    def _start(self, promise: Promise, number: int, finished: queue.SimpleQueue[Result]) -> None:
        ids = f"{self._config.transactional_id}-doctor-{self._run}-{number}"
        group = f"{self.topic}.{number}"
        clients = Clients(self._config, self._stop, self.topic, number, group, ids)
        # A call into the client may hang for ever, and must not keep the process alive.
        thread = threading.Thread(
            target=lambda: finished.put(_try(promise, clients)), name=f"trial-{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _clean_up(self) -> None:
        for what, delete, name in (
            ("topic", self._topics.delete, self.topic),
            ("groups that begin with", self._topics.delete_groups, f"{self.topic}."),
        ):
            try:
                delete(name)
            except EnricherError as error:
                self.left_behind.append(f"{what} '{name}' ({error})")
        if self.left_behind:
            log.warning("not deleted: %s", "; ".join(self.left_behind))


def _try(promise: Promise, clients: Clients) -> Result:
    """The result, whatever happens: a trial that fails must not hide the results of the others."""
    began_s = time.monotonic()
    try:
        outcome = promise.trial(clients)
    except KafkaException as exception:
        outcome = Outcome(None, str(our_error(exception.args[0], "a trial", clients.complaint)))
    except EnricherError as error:
        outcome = Outcome(None, str(error))
    except Exception as error:  # noqa: BLE001  as the docstring says
        outcome = Outcome(None, f"{type(error).__name__}: {error}")
    return Result(promise, outcome, time.monotonic() - began_s)
