"""`enricher doctor --transactions`: tries the promises of this broker that exactly-once depends on, one after the other.

The trials share a topic that is created for them and deleted afterwards.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from enricher.errors import BrokerError, EnricherError
from enricher.operate.doctor.broker import UNREACHABLE
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.doctor.promises import PROMISES, Clients, Outcome, Promise
from enricher.operate.topics import Admin
from enricher.worker.kafka.errors import our_error
from enricher.worker.kafka.metadata import result_of
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline

_report = Reporter("broker")
_PAGE = "deploy/promises.md"
_NO = f"Do not run a worker on this broker, and report to us which broker it is ({_PAGE})."


log = logging.getLogger(__name__)
_LIMIT_S = 120.0
"""The time after which no other trial begins."""
_DELETE_S = 15.0
"""A cluster that is electing leaders takes seconds."""
_LEAST_PARTITIONS = 2  # two members of one group, each with a partition
_FOREIGN = re.compile(r"[^a-zA-Z0-9._-]")
_MAX_PREFIX_CHARS = 150  # Kafka's names of topics have 249 characters at most


def tried_promises(config: KafkaConfig) -> Iterator[Finding]:
    """Yield each finding as soon as it is known. Raises SettingsError. A caller that stops early must close the iterator."""
    trials, check, prefix = Trials(config), "topics of the trials", Trials.prefix_of(config)
    try:
        cluster = trials.cluster()
    except BrokerError as error:
        yield _report.fail("broker", str(error), UNREACHABLE)
        return
    yield _report.ok("broker", f"{len(cluster.brokers)} broker(s), cluster {cluster.cluster_id}")
    rights = (
        f"The trials need CREATE, DELETE, READ and WRITE on topics that begin with '{prefix}', READ on groups with the same "
        f"prefix, and WRITE on transactional ids that begin with '{config.transactional_id}-doctor-'."
    )
    try:
        with trials:
            yield _report.ok(check, f"'{trials.name}' was created, and is deleted at the end")
            yield from (finding_of(promise, outcome, rights) for promise, outcome in trials.outcomes())
    except BrokerError as error:
        yield _report.fail(check, str(error), rights)
        return
    if trials.left_behind:
        yield _report.warn("clean-up", f"not deleted: {trials.left_behind}", "Delete it by hand.")


def finding_of(promise: Promise, outcome: Outcome, rights: str) -> Finding:
    """FAIL if a promise does not hold or could not be tried."""
    if outcome.holds:
        return _report.ok(promise.name, outcome.seen)
    if outcome.holds is None:
        advice = f"If a right is missing: {rights} Otherwise run it again, and report the result to us ({_PAGE})."
        return _report.fail(promise.name, f"could not be tried: {outcome.seen}", advice)
    return _report.fail(promise.name, f"does not hold: {outcome.seen}", f"{promise.otherwise} {_NO}")


_ANY_REPLICAS = -1  # the broker's default (KIP-464, Kafka 2.4)


class Trials(Admin):
    """Creates a topic with a partition for each promise on entry, and deletes it on exit.

    Entry raises BrokerError if the topic cannot be created. `left_behind`: why the topic could not be deleted. The trials'
    groups are left to the broker, which removes groups that have neither members nor offsets of topics that exist.
    """

    def __init__(self, config: KafkaConfig, promises: Sequence[Promise] = PROMISES) -> None:
        super().__init__(config)
        self._promises = promises
        self._run = uuid.uuid4().hex[:8]
        self.left_behind: str | None = None

    @staticmethod
    def prefix_of(config: KafkaConfig) -> str:
        """The prefix of the names of all topics and groups of trials, for granting rights."""
        return f"{_FOREIGN.sub('-', config.group_id)[:_MAX_PREFIX_CHARS]}-doctor-"

    @property
    def name(self) -> str:
        """The topic that the trials share. Its name is the prefix of everything that this run creates."""
        return f"{self.prefix_of(self._config)}{self._run}"

    def outcomes(self, limit_s: float = _LIMIT_S) -> Iterator[tuple[Promise, Outcome]]:
        """Try each promise. A trial that would begin after `limit_s` is left out.

        They run in a thread: a call of the client that Ctrl-C interrupts may raise another error than that.
        """
        deadline = Deadline(limit_s)
        with ThreadPoolExecutor(1, "trial") as thread:
            for number, promise in enumerate(self._promises):
                ids = f"{self._config.transactional_id}-doctor-{self._run}-{number}"
                clients = Clients(self._config, self.name, number, f"{self.name}.{number}", ids)
                late = Outcome(None, f"not begun within {limit_s:.0f} s") if deadline.over else None
                yield promise, late or thread.submit(_try, promise, clients).result()

    def __enter__(self) -> Self:
        try:
            seen = self.topic(self._config.input_topic)
            replicas = seen.replicas if seen and seen.replicas else _ANY_REPLICAS
            count = max(_LEAST_PARTITIONS, len(self._promises))
            self.create([NewTopic(self.name, num_partitions=count, replication_factor=replicas)])
        except BaseException:
            self._delete()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            log.warning("stopped early: deleting the topic '%s'", self.name)
        self._delete()

    def _delete(self) -> None:
        """Delete the topic; a missing one is no error."""
        try:
            with self._errors(f"deleting the topic '{self.name}'", "DELETE on the topic"):
                future = self._client.delete_topics([self.name], request_timeout=_DELETE_S)[self.name]
                try:
                    result_of(future, _DELETE_S)
                except KafkaException:
                    if self.topic(self.name):
                        raise
        except EnricherError as error:
            self.left_behind = f"topic '{self.name}' ({error})"
            log.warning("not deleted: %s", self.left_behind)


def _try(promise: Promise, clients: Clients) -> Outcome:
    """The outcome, whatever happens: a trial that fails must not hide the results of the others."""
    try:
        return promise.trial(clients)
    except KafkaException as exception:
        return Outcome(None, str(our_error(exception.args[0], "a trial", clients.complaint)))
    except EnricherError as error:
        return Outcome(None, str(error))
    except Exception as error:  # noqa: BLE001  as the docstring says
        return Outcome(None, f"{type(error).__name__}: {error}")
