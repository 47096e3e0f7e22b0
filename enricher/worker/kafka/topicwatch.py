"""Watches the ids of the input topics, and how many partitions each of the topics has.

A topic that is deleted and created again keeps its name, and the client goes on reading at the old offset. Only the id
changes (KIP-516). So every transaction asks for it, after its records were read and before their offsets are sent. A changed
id ends the process: a client that has read the old topic may never find the leaders of the new one (librdkafka 4898).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from enricher.errors import BrokerError, MissingTopic, SettingsError, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors, mapping_errors, new_client, our_error
from enricher.worker.kafka.metadata import foreign, listed_offsets, no_such_topic, ours, topic_id_text
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Partition
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.25
_LAG_S = 2.0
"""How long another id must be reported. Brokers learn of changes one after another, and one that lags reports the id of the
topic before the one that is read, whose worker must not end."""
_NEW_CLIENT_S = 1.5
"""After this time without an answer a new client asks: it does not know the broker that is gone or frozen."""
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_LATE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
"""A broker that has just started returns these for every topic."""
_Answers = Mapping[str, "Future[TopicDescription]"]


class TopicReplaced(BrokerError):
    """An input topic was deleted and created again under the same name. `remedy`: what to do about it."""

    def __init__(self, topic: str, before: str, now: str, remedy: str) -> None:
        super().__init__(
            f"the topic '{topic}' was deleted and created again: its id is {now}, and the group has read {before}. This "
            f"process ends before it commits anything of the new topic. {remedy}"
        )


def how_to_begin(config: KafkaConfig, topic: str, numbers: Sequence[int] = ()) -> str:
    """The remedy for a topic that was created again, if the group is to read these partitions of it, by default all."""
    group = config.group_id
    options = "".join(f" --partition {number}" for number in numbers)
    return f"Stop all workers of the group, and run `enricher offsets set {group} {topic} --at beginning{options}`"


class TopicWatch:
    """Asks about the topics over one connection. For one thread, the loop's.

    `topic_ids`: those of the input topics, which stay as they were first reported. `remedy`: what to do if one changes, by
    default `how_to_begin`.
    """

    def __init__(self, config: KafkaConfig, *, remedy: str = "") -> None:
        self._config = config
        self._remedy = remedy
        self.client_errors = ClientErrors(config)
        self.client = self._connect()
        """The client, also for other questions about topics. It is replaced after a question without an answer."""
        self._asked: list[_Answers] = []
        self._ends: dict[Partition, Future[Any]] = {}
        self.topic_ids: Mapping[str, str] = {}
        self.partitions: Mapping[str, int] = {}
        """How many partitions each topic has."""

    def open(self) -> None:
        """Ask for the first time. Raises TransactionTrouble without an answer, MissingTopic if a topic is missing.

        Raises SettingsError if an output topic has fewer partitions than the input.
        """
        self.refresh()
        require_enough_partitions(self._config, self.partitions)

    @property
    def topic_id(self) -> str:
        """The id of the input topic; of the first one if there are several."""
        return self.topic_ids[self._config.input_topic]

    def refresh(self) -> None:
        """Learn the topics' ids, or confirm those that are known. Brokers that hear of topics late are asked again.

        Blocks for the request timeout at most; raises what `confirm` raises.
        """
        self.ask()
        self._answer(patient=True)

    def ask(self) -> None:
        """Send a question and discard earlier ones. Does not block."""
        self._asked.clear()
        self._send()

    def confirm(self) -> None:
        """Wait for the answer to `ask`. Raises TopicReplaced if an input topic is no longer the one that is read.

        Raises TransactionTrouble without an answer within the request timeout.
        """
        self._answer(patient=False)

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int] | None:
        """The last stable offsets, without partitions that got no answer. None while the answer is pending.

        Does not block: call it again with the same partitions; other partitions are the next question.
        """
        if not self._ends:
            specs = {foreign(partition): _LATEST for partition in partitions}
            answers = self.client.list_offsets(
                specs,
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._config.request_timeout_s,
            )
            self._ends = {ours(tp): future for tp, future in answers.items()}
        if not all(future.done() for future in self._ends.values()):
            return None
        asked, self._ends = self._ends, {}
        return {partition: end for partition, future in asked.items() if (end := _end(future)) >= 0}

    def beginnings(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The first offsets. Blocks for the request timeout at most; raises TransactionTrouble."""
        return self._list(partitions, _EARLIEST)

    def high_watermarks(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The ends with the records of open transactions. Blocks for the request timeout; raises TransactionTrouble."""
        return self._list(partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    # ---- inside

    def _list(
        self,
        partitions: Collection[Partition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Mapping[Partition, int]:
        wanted = {foreign(partition): spec for partition in partitions}
        with mapping_errors("asking for offsets", self.client_errors, self.client):
            return listed_offsets(self.client, wanted, isolation, self._config.request_timeout_s)

    def _connect(self) -> AdminClient:
        # Questions go to the controller that the client knows: it must soon forget one that is gone.
        properties = {"topic.metadata.refresh.interval.ms": 3_000}
        return new_client(AdminClient, self._config.client("admin") | properties, self.client_errors)

    def _send(self) -> None:
        self.client.poll(0)  # else the client's events pile up
        timeout_s = self._config.request_timeout_s
        with mapping_errors("asking for the topics", self.client_errors):
            self._asked.append(
                self.client.describe_topics(TopicCollection(self._config.topics), request_timeout=timeout_s)
            )

    def _answer(self, *, patient: bool) -> None:
        """Take the first answer. If `patient`, asks again after a refusal: brokers learn of topics late."""
        deadline, renewal = Deadline(self._config.request_timeout_s), Deadline(_NEW_CLIENT_S)
        lag = Deadline(_LAG_S)
        while True:
            if good := next(filter(_complete, self._asked), None):
                if self._replacement(good) and not lag.over:
                    time.sleep(_ASK_AGAIN_S)
                    self.ask()
                    continue
                self._take(good)
                return
            newest = self._asked[-1]
            refused = all(future.done() for future in newest.values())
            final = refused and _is_refused(newest, but=_LATE if patient else frozenset())
            if deadline.over or final:
                raise self._trouble(newest)
            if refused:
                time.sleep(_ASK_AGAIN_S)
            elif wait([future for future in newest.values() if not future.done()], _ASK_AGAIN_S).done:
                continue
            elif renewal.over:
                self.client, renewal = self._connect(), Deadline(_NEW_CLIENT_S)
            self._send()

    def _take(self, answers: _Answers) -> None:
        self._asked, self.client_errors.answered = [], True
        described = {topic: future.result() for topic, future in answers.items()}
        counts = {topic: len(description.partitions) for topic, description in described.items()}
        if self.partitions and counts != self.partitions:
            log.warning(
                "the numbers of partitions changed: now %s, before %s",
                _counts_text(counts),
                _counts_text(self.partitions),
            )
        self.partitions = counts
        if topic := self._replacement(answers):
            remedy = self._remedy or how_to_begin(self._config, topic)
            raise TopicReplaced(topic, self.topic_ids[topic], topic_id_text(described[topic].topic_id), remedy)
        self.topic_ids = {topic: topic_id_text(described[topic].topic_id) for topic in self._config.inputs}

    def _replacement(self, answers: _Answers) -> str | None:
        """An input topic with another id than at first."""
        ids = self.topic_ids.items()
        return next((topic for topic, before in ids if topic_id_text(answers[topic].result().topic_id) != before), None)

    def _trouble(self, answers: _Answers) -> TransactionTrouble:
        """The error for a question that failed."""
        for topic, future in answers.items():
            exception = future.exception() if future.done() else None
            if isinstance(exception, KafkaException):
                error = exception.args[0]
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return MissingTopic(no_such_topic(topic))
                trouble = our_error(error, f"asking for the topic '{topic}'", self.client_errors)
                if not isinstance(trouble, TransactionTrouble):
                    raise trouble
                return trouble
        self.client.poll(0)  # only a callback says why a connection failed
        error = KafkaError(KafkaError._TIMED_OUT, f"no answer within {self._config.request_timeout_s:g} s")  # noqa: SLF001  the client's name
        return TransactionTrouble(f"asking for the topics: {self.client_errors.explain(error)}")


def _complete(answers: _Answers) -> bool:
    return all(future.done() and future.exception() is None for future in answers.values())


def _is_refused(answers: _Answers, *, but: frozenset[int]) -> bool:
    """Whether one of the errors is a broker's; the client's own, for missing answers, have codes below 0."""
    errors = [exception.args[0] for future in answers.values() if (exception := future.exception())]
    return any(isinstance(error, KafkaError) and error.code() > 0 and error.code() not in but for error in errors)


def _end(future: Future[Any]) -> int:
    """The offset of an answer; below 0 if there is none."""
    return -1 if future.exception() else int(future.result().offset)


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} {count}" for topic, count in counts.items())


def require_enough_partitions(config: KafkaConfig, counts: Mapping[str, int]) -> None:
    """Raise SettingsError if an output topic has fewer partitions than an input."""
    largest = max(config.inputs, key=lambda topic: counts[topic])
    wanted = counts[largest]
    fewer = {topic: count for topic, count in counts.items() if count < wanted and topic not in config.inputs}
    if fewer:
        raise SettingsError(
            f"the input topic '{largest}' has {wanted} partitions; these have fewer: {_counts_text(fewer)}. "
            "Each output goes to the partition of its input, which keeps the order and shows where to resume. Add "
            f"partitions to them: kafka-topics --alter --partitions {wanted}"
        )
