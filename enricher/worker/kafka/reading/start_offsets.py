"""The beginning of a partition: at the group's committed offset, if it belongs to this very topic.

The client can look up committed offsets itself, but asks only once and never again after an error that it does not know
(librdkafka 5586). So this module asks, and gives the client explicit offsets.

A partition without a committed offset begins where `kafka.start` says, unless it was added after the group began: then it
begins at its beginning. `CommitMetadata.began_with`, beside every committed offset, tells which partitions these are. It is
not enough that other partitions have offsets: while a group begins, its members commit one after another.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.reading.resume_errors import HiddenOutputs, cannot_tell
from enricher.worker.kafka.reading.tails import OutputTails
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors, new_client
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.kafka.shared.metadata import foreign, ours, without_errors
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Mark, Partition, Start
from enricher.worker.rules.commit_metadata import CommitMetadata, partitions_at_the_start
from enricher.worker.rules.offsets import names_of

log = logging.getLogger(__name__)

_LOOK_S = 1.0
"""How long one look at the outputs may take, since the loop waits meanwhile. The next one goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class StartOffset:
    """The offset to begin at, and the leader epoch of the record before: with it the client detects a truncated log.

    `uncommitted`: must be committed before anything is read, because it cannot be determined a second time.
    """

    start: Start
    leader_epoch: int | None = None
    uncommitted: bool = False

    def at(self, partition: Partition) -> TopicPartition:
        """The start as the client's type."""
        if self.leader_epoch is None:
            return TopicPartition(partition.topic, partition.number, self.start.offset)
        return TopicPartition(partition.topic, partition.number, self.start.offset, leader_epoch=self.leader_epoch)


class StartFinder:
    """Finds where partitions begin. Remembers what this worker committed, because a lower answer is stale.

    For the partitions of one input topic. `began_with`: as in `CommitMetadata`, of that topic; None while unknown.
    """

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, client_errors: ClientErrors) -> None:
        self._consumer = consumer
        self._config = config
        self._watch = watch
        self._client_errors = client_errors
        self._tails = OutputTails(config, watch)
        self._floors: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        """The ends that `kafka.start=end` determined, until a committed offset is found."""
        self.began_with: int | None = None

    def renew(self, consumer: Consumer) -> None:
        """Ask this consumer from now on."""
        self._consumer = consumer

    def note_commit(self, offsets: Mapping[Partition, int]) -> None:
        """This worker committed these offsets: a lower answer is stale from now on."""
        self._floors.update(offsets)

    def forget(self) -> None:
        """The topic was recreated: what was committed belongs to the old one, and the new one is read from its beginning."""
        if self._config.replay:
            raise BrokerError(
                f"the topic '{self._config.input_topic}' was deleted and created again: the range that the group "
                f"'{self._config.group_id}' replays is gone with the old one"
            )
        self._floors.clear()
        self._ends.clear()
        self.began_with = 0

    def stop_searching(self) -> None:
        """Partitions have left; a search that is not over was for them, too."""
        self._tails.close()

    def find(self, partitions: Sequence[Partition], timeout_s: float) -> Mapping[Partition, StartOffset]:
        """The beginnings of partitions with a committed offset; the others are left out. Blocks for `timeout_s` at most.

        Raises TransactionTrouble if the broker does not answer or the answer is stale.
        """
        found: dict[Partition, StartOffset] = {}
        committed = self._committed_offsets(self._consumer, partitions, timeout_s)
        for tp in committed:
            partition, metadata = ours(tp), CommitMetadata.decode(tp.metadata)
            if tp.offset < 0 or not metadata.is_of(self._topic_id):
                continue
            if tp.offset < self._floors.get(partition, 0):
                message = (
                    f"the committed offset of {tp.topic}[{tp.partition}] is reported as {tp.offset}, which is stale"
                )
                raise TransactionTrouble(message)
            self._require_same_range(metadata)
            start = Start(tp.offset, metadata.mark, metadata.reached_limit, metadata.until)
            found[partition] = StartOffset(start, tp.leader_epoch)
            self._ends.pop(partition, None)
        if found and len(found) == len(partitions) and self.began_with is None:
            # Offsets of an earlier version: at least what is added from now on will be known for new.
            self.began_with = self._watch.partitions[self._config.input_topic]
        return found

    def determine(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The beginnings of partitions for which `find` has just found nothing. Blocks for some request timeouts at most.

        Raises TransactionTrouble if no broker answers; StillSearching, SettingsError and BrokerError as `OutputTails` does.
        """
        if self._config.replay:
            return self._outside_the_range(partitions)
        known = self._known_ends(partitions)
        missing = [partition for partition in partitions if partition not in known]
        if not missing:
            return known
        began_with = self._partitions_at_the_start()
        added = [partition for partition in missing if partition.number >= began_with]
        if added:
            reason = (
                f"added after the group began with {began_with}" if began_with else "the group is older than the topic"
            )
            log.info("no committed offset for %s: reading from the beginning (%s)", names_of(added), reason)
        begun = [partition for partition in missing if partition.number < began_with]
        return {**known, **self._at_the_beginning(added), **(self._as_set(begun) if begun else {})}

    @property
    def _topic_id(self) -> str | None:
        return self._watch.topic_ids[self._config.input_topic]

    def _require_same_range(self, metadata: CommitMetadata) -> None:
        """Raise BrokerError if the offset is that of another range, or of a group without one."""
        group, ours = self._config.group_id, self._config.replay
        if metadata.replay and not ours:
            raise BrokerError(
                f"the group '{group}' replays a range ({metadata.replay}): name another group in kafka.group_id"
            )
        if ours and (metadata.replay != ours or metadata.until is None):
            raise BrokerError(
                f"the group '{group}' does not replay the range {ours}: its offsets were committed by something else"
            )

    def _outside_the_range(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The empty ranges of partitions that were added after the range of the group was committed.

        Raises BrokerError if a partition was in the range, so that its offset has been lost.
        """
        began_with = self.began_with or 0
        if gone := [partition for partition in partitions if partition.number < began_with]:
            raise BrokerError(
                f"the group '{self._config.group_id}' has lost its offsets for {names_of(gone)}, which say what is left to "
                "replay. Offsets expire when a group has no member for offsets.retention.minutes"
            )
        log.info("%s: added after the range was chosen, so there is nothing to replay", names_of(partitions))
        return {
            partition: StartOffset(Start(at, until=at)) for partition, at in self._watch.beginnings(partitions).items()
        }

    def _committed_offsets(
        self, consumer: Consumer, partitions: Iterable[Partition], timeout_s: float
    ) -> Sequence[TopicPartition]:
        with mapping_errors("asking for the committed offsets", self._client_errors):
            tps = without_errors(consumer.committed([foreign(each) for each in partitions], timeout=timeout_s))
        count = partitions_at_the_start([(tp.offset, tp.metadata) for tp in tps], self._topic_id)
        if count is not None:
            self.began_with = count if self.began_with is None else min(count, self.began_with)
        return tps

    def _partitions_at_the_start(self) -> int:
        """How many partitions the topic had when the group began. If it has not begun, it begins now."""
        committed = [tp for tp in self._group_offsets() if tp.offset >= 0]
        partitions = self._watch.partitions
        if not committed and (self.began_with is None or self._floors):
            # What this worker has committed for the topic is gone, so what it knew about the group is no longer true.
            self.began_with = partitions[self._config.input_topic]
        if self.began_with is None:
            fewest = min(partitions.values())
            # Offsets of an earlier version do not tell. Outputs of partitions from `fewest` on would not tell either.
            old = any(tp.partition < fewest for tp in committed)
            self.began_with = fewest if old else partitions[self._config.input_topic]
        return self.began_with

    def _group_offsets(self) -> Sequence[TopicPartition]:
        """The group's offsets for all partitions. Blocks for the request timeout at most.

        A client of its own asks, which does not wait for pending transactions: in a large group there is always one.
        """
        topic = self._config.input_topic
        properties = self._config.consumer() | {"isolation.level": "read_uncommitted"}
        with closing(new_client(Consumer, properties, self._client_errors)) as consumer:
            everything = [Partition(topic, number) for number in range(self._watch.partitions[topic])]
            return self._committed_offsets(consumer, everything, self._config.request_timeout_s)

    def _known_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The ends that this worker has determined or gone beyond, with `kafka.start=end`."""
        if self._config.start != "end":
            return {}
        known = {**self._ends, **self._floors}
        return _starts(
            {partition: known[partition] for partition in partitions if partition in known}, uncommitted=True
        )

    def _at_the_beginning(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        return _starts(self._watch.beginnings(partitions)) if partitions else {}

    def _as_set(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The starts of these by `kafka.start`."""
        start = self._config.start
        if start == "end":
            self._ends.update(self._watch.last_offsets(partitions))
            places = ", ".join(f"{each.number} at {self._ends[each]}" for each in sorted(partitions))
            log.info(
                "no committed offset for %s: reading from the end (kafka.start=end): %s", names_of(partitions), places
            )
            return self._known_ends(partitions)
        if start == "resume":
            return {**self._at_the_beginning(partitions), **self._behind_outputs(partitions)}
        log.info("no committed offset for %s: reading from the beginning (kafka.start=beginning)", names_of(partitions))
        return self._at_the_beginning(partitions)

    def _behind_outputs(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        outputs = (self._config.output_topic, self._config.dead_letter_topic)
        fewest = min(self._watch.partitions[topic] for topic in outputs)
        beyond = [partition for partition in partitions if partition.number >= fewest]
        if beyond and self._tails.unwritten():
            return {}
        if beyond:
            reason = f"an output topic has only {fewest} partitions, so outputs of it may be in any of them"
            raise cannot_tell(self._config, beyond[0], reason)
        resumed = self._tails.next_offsets(partitions, _LOOK_S)
        if resumed:
            places = ", ".join(f"{each.number} at {offset}" for each, offset in sorted(resumed.items()))
            log.warning(
                "the group '%s' has no committed offsets for %s, but there are outputs of it: resuming behind the newest of "
                "them (partition %s). Offsets expire when a group has no member for offsets.retention.minutes. To start "
                "from the beginning on purpose, set kafka.start=beginning",
                self._config.group_id, names_of(sorted(resumed)), places,
            )  # fmt: skip
        return _starts(resumed)


class StartFinders:
    """A finder for each input topic, asked for its partitions."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, client_errors: ClientErrors) -> None:
        self._finders = {
            topic: StartFinder(consumer, config.of_lane(topic), watch, client_errors) for topic in config.inputs
        }

    def of_topic(self, topic: str) -> StartFinder:
        """The finder for the partitions of one topic."""
        return self._finders[topic]

    def renew(self, consumer: Consumer) -> None:
        """Ask this consumer from now on."""
        for finder in self._finders.values():
            finder.renew(consumer)

    def note_commit(self, offsets: Mapping[Partition, int]) -> None:
        """This worker committed these offsets: a lower answer is stale from now on."""
        for finder, of_topic in self._by_topic(offsets):
            finder.note_commit({partition: offsets[partition] for partition in of_topic})

    def stop_searching(self) -> None:
        """Partitions have left; a search that is not over was for them, too."""
        for finder in self._finders.values():
            finder.stop_searching()

    def find(self, partitions: Sequence[Partition], timeout_s: float) -> Mapping[Partition, StartOffset]:
        """Do what `StartFinder.find` does; blocks for `timeout_s` per topic at most."""
        found: dict[Partition, StartOffset] = {}
        for finder, of_topic in self._by_topic(partitions):
            found |= finder.find(of_topic, timeout_s)
        return found

    def determine(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """Do what `StartFinder.determine` does, topic by topic: one that cannot tell yet holds up no other.

        Raises HiddenOutputs for the partitions of all topics together that a transaction hides.
        """
        found: dict[Partition, StartOffset] = {}
        troubles: list[HiddenOutputs] = []
        trouble: TransactionTrouble | None = None
        for finder, of_topic in self._by_topic(partitions):
            try:
                found |= finder.determine(of_topic)
            except HiddenOutputs as each:
                troubles.append(each)
            except TransactionTrouble as each:
                trouble = each
        if troubles:
            hidden = frozenset(partition for each in troubles for partition in each.partitions)
            raise HiddenOutputs("; ".join(map(str, troubles)), hidden)
        if trouble and not found:
            raise trouble
        return found

    def _by_topic(self, partitions: Iterable[Partition]) -> Iterator[tuple[StartFinder, list[Partition]]]:
        wanted = [*partitions]
        for topic, finder in self._finders.items():
            if of_topic := [partition for partition in wanted if partition.topic == topic]:
                yield finder, of_topic


def _starts(offsets: Mapping[Partition, int], *, uncommitted: bool = False) -> Mapping[Partition, StartOffset]:
    return {partition: StartOffset(Start(at, Mark()), uncommitted=uncommitted) for partition, at in offsets.items()}


def assigned_at(partition: Partition, found: StartOffset | None) -> TopicPartition:
    """The client's first offset. A paused partition waits at 0: without one, the client would look it up itself."""
    return found.at(partition) if found else TopicPartition(partition.topic, partition.number, 0)
