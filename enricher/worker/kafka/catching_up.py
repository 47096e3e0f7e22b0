"""Tells when the group has committed everything that was in the input topic at the start (`run --until-caught-up`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka.admin import OffsetSpec

from enricher.errors import MissingTopic, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors
from enricher.worker.kafka.metadata import answer_to, foreign, listed_offsets, ours
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.records import Partition
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_CHECK_S = 0.1  # each check is one request to the broker
_CHECK_TOPIC_S = 1.0
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class CatchingUp:
    """The ends at the start, compared with the group's committed offsets.

    `committed_here`: the committed offsets of this member's partitions, as far as it knows. Only when they are at their
    ends the broker is asked: `done` is called in every turn of the loop.
    """

    def __init__(
        self,
        consumer: Consumer,
        config: KafkaConfig,
        watch: TopicWatch,
        client_errors: ClientErrors,
        committed_here: Callable[[], Mapping[Partition, int]],
    ) -> None:
        self._consumer = consumer
        self._topics = config.inputs
        self._watch = watch
        self._client_errors = client_errors
        self._committed_here = committed_here
        self._timeout_s = config.request_timeout_s
        self._ends: Mapping[Partition, int] = {}
        self._next_check_s = self._next_topic_check_s = 0.0

    def note(self) -> None:
        """Note the current ends of the topics that `watch` knows. Raises the client's errors.

        Waits for leaders, which a new topic does not have at once, for the request timeout at most.
        """
        partitions = [
            Partition(topic, number) for topic in self._topics for number in range(self._watch.partitions[topic])
        ]
        deadline = Deadline(self._timeout_s)
        lows, ends = (self._list(partitions, spec, deadline) for spec in (_EARLIEST, _LATEST))
        self._ends = {partition: end for partition, end in ends.items() if end > lows[partition]}
        records = sum(ends[partition] - lows[partition] for partition in partitions)
        log.info("catching up with at most %d records; some of them may be committed already", records)

    def done(self) -> bool:
        """True once the group has committed all these ends. May block for some request timeouts.

        Raises TopicReplaced or MissingTopic if the topic is no longer the one that is read.
        """
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return False
        try:
            if self._is_committed():
                return True
            if now_s >= self._next_topic_check_s:
                # Without work nothing else notices: the committed offsets are deleted with their topic.
                self._next_topic_check_s = now_s + _CHECK_TOPIC_S
                self._watch.ask()
                self._watch.confirm()
        except MissingTopic:
            raise
        except (KafkaException, TransactionTrouble) as trouble:
            cause = trouble.args[0]
            reason = self._client_errors.explain(cause) if isinstance(trouble, KafkaException) else trouble
            log.warning("cannot find out whether the group has caught up: %s", reason)
        finally:
            self._next_check_s = time.monotonic() + _CHECK_S
        return False

    def _list(self, partitions: Sequence[Partition], spec: OffsetSpec, deadline: Deadline) -> Mapping[Partition, int]:
        wanted = {foreign(partition): spec for partition in partitions}

        def ask(left_s: float) -> Mapping[Partition, int]:
            return listed_offsets(self._watch.client, wanted, IsolationLevel.READ_COMMITTED, left_s)

        return answer_to(ask, deadline)

    def _is_committed(self) -> bool:
        here = self._committed_here()
        if any(offset < self._ends.get(partition, 0) for partition, offset in here.items()):
            return False
        if not self._ends:
            return True
        wanted = [foreign(partition) for partition in self._ends]
        committed = self._consumer.committed(wanted, timeout=self._timeout_s)
        return all(tp.offset >= self._ends[ours(tp)] for tp in committed)
