"""Commits the range of a replay for its group, once, however many processes begin at the same time.

The bounds are committed before anybody reads: per partition the offset to begin at, and in its metadata the offset to end
before. From then on they travel with every committed offset, so a restarted process, or one that joins later, reads the same
range, also if `end` or a time would mean other offsets by then.

A transactional id that all replays of the group share serves as a lock, also if their ranges differ: a new producer aborts
the transaction of a process that is still choosing, and waits for one that is being committed. Offsets without a member are
not fenced, so the group's state is read between opening and committing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from enricher.errors import BrokerError, ProducerFenced, SettingsError, TransactionTrouble
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.kafka.shared.client import KafkaConfig, transactional_id
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.errors import mapping_errors, without_recovery
from enricher.worker.kafka.shared.lone_consumers import lone_consumer
from enricher.worker.kafka.shared.partition_reader import Ranges
from enricher.worker.kafka.shared.producers import short_lived_producer
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.deadlines import Deadline, until

log = logging.getLogger(__name__)

_LOCK = ("replay", "range")  # two parts: a worker has one, its instance
_ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Pinned:
    """The offset that the group has committed, and the one before which the range ends, by partition number."""

    committed: Mapping[int, int]
    until: Mapping[int, int]

    @property
    def left(self) -> int:
        """Offsets that are left to replay; markers of transactions and removed records take some of them."""
        return sum(max(0, end - self.committed[number]) for number, end in self.until.items())


def read_pinned(ask: Inspector, config: KafkaConfig) -> Pinned | None:
    """The range of the group and how far it has come; None if the group has not begun.

    Raises SettingsError if the group reads something else, BrokerError if its topic was created again.
    """
    topic_id = ask.topic_id(config.input_topic)
    committed = {
        tp.partition: (tp.offset, CommitMetadata.decode(tp.metadata))
        for tp in ask.committed_offsets(config.input_topic)
        if tp.offset >= 0
    }
    if not committed:
        return None
    for offset, metadata in committed.values():
        _require_same(config, metadata, offset)
        if not metadata.is_of(topic_id):
            raise BrokerError(
                f"the topic '{config.input_topic}' was deleted and created again since the group '{config.group_id}' began: "
                "its range is gone. Replay the new topic in another --group"
            )
    bounds = {number: metadata.until for number, (_, metadata) in committed.items() if metadata.until is not None}
    return Pinned({number: committed[number][0] for number in bounds}, bounds)


def pin(config: KafkaConfig, ranges_now: Callable[[Inspector], Ranges]) -> Pinned:
    """The range of the group, which is committed now unless it was before. Blocks for some request timeouts at most.

    `ranges_now` chooses it, and may raise. Raises SettingsError and BrokerError as `read_pinned` does.
    """
    complaint = Complaint(config)
    with closing(Inspector(config, complaint, stable=True)) as ask:
        if pinned := read_pinned(ask, config):
            return pinned
        # Asked before the offsets: if they are those of a topic that was made again meanwhile, the commit says so later.
        topic_id = ask.topic_id(config.input_topic)
        ranges, found, troubles = ranges_now(ask), list[Pinned](), list[TransactionTrouble]()

        def try_once() -> bool:
            # Mostly another process of this replay chooses the range at the same time. The broker says so, or that its own
            # error is unknown. The next try begins with what is committed by then.
            try:
                found.append(_commit(config, complaint, ask, topic_id, ranges))
            except TransactionTrouble as trouble:
                log.debug("the range is not committed yet: %s", trouble)
                troubles.append(trouble)
            return bool(found)

        with without_recovery():
            if not until(try_once, Deadline(3 * config.transaction_timeout_s), pause_s=_ASK_AGAIN_S):
                if isinstance(troubles[-1], ProducerFenced):
                    raise BrokerError(
                        f"other processes choose the range of the group '{config.group_id}' again and again"
                    )
                raise troubles[-1]
        return found[0]


def _commit(config: KafkaConfig, complaint: Complaint, ask: Inspector, topic_id: str | None, ranges: Ranges) -> Pinned:
    """Commit the ranges, unless another process has done so. Raises TransactionTrouble, or ProducerFenced by another one."""
    properties = config.producer() | {"transactional.id": transactional_id(config.group_id, *_LOCK)}
    timeout_s = config.transaction_timeout_s
    with (
        short_lived_producer(properties, complaint, timeout_s, metadata_timeout_s=config.request_timeout_s) as producer,
        closing(lone_consumer(config, complaint, {})) as outsider,
        mapping_errors("committing the range", complaint, producer),
    ):
        if pinned := read_pinned(ask, config):
            return pinned
        offsets = [
            TopicPartition(
                config.input_topic,
                number,
                start,
                metadata=CommitMetadata(topic_id, replay=config.replay, until=end).encode(),
            )
            for number, (start, end) in ranges.items()
        ]
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, outsider.consumer_group_metadata(), timeout_s)
        producer.commit_transaction(timeout_s)
    log.info("the range %s is committed for the group '%s'", config.replay, config.group_id)
    starts, ends = ({number: bounds[side] for number, bounds in ranges.items()} for side in (0, 1))
    return Pinned(starts, ends)


def _require_same(config: KafkaConfig, metadata: CommitMetadata, offset: int) -> None:
    group = config.group_id
    if not metadata.replay:
        raise SettingsError(f"the group '{group}' is no replay: it has committed offset {offset}. Name another --group")
    if metadata.replay != config.replay:
        raise SettingsError(
            f"the group '{group}' replays {metadata.replay}, not {config.replay}. Give the same --from and --to to go on "
            "with it, or name another --group"
        )
