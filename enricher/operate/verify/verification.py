"""One verification: its questions and reads, in their order.

The order makes it correct while workers run: first committed offsets, then the ends of the outputs (all outputs of inputs
below those offsets are before these ends), then the outputs, then committed offsets again (the inputs of all outputs read
are below them), then the input up to there. Inputs below the first offsets must have an output; there must be no output of
an input at or above the second ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from enricher.errors import BrokerError, SettingsError
from enricher.operate.inspector import Inspector
from enricher.operate.verify.contract import DeleteEvents, same_topic
from enricher.operate.verify.ledger import (
    Check,
    Checks,
    Doubts,
    Inputs,
    Judge,
    JudgedRange,
    PartitionLedger,
    Place,
    Report,
    Skips,
)
from enricher.operate.verify.outputs import Outputs
from enricher.operate.verify.recomputing import LeastScore, Recomputation, Recompute, RecordAsJson, chosen_of
from enricher.worker.kafka.errors import broker_errors
from enricher.worker.kafka.metadata import without_errors
from enricher.worker.kafka.partition_reader import Ranges, lone_consumer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader
from enricher.worker.runtime.deadlines import Deadline, until

_HELD_BACK = "an open transaction holds committed offsets back"
_EVERYTHING: Final = 2**63 - 1  # more than any topic holds
PartitionOffsets = Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Chooses what a verification does besides its static checks.

    `open_wait_s`: how long to wait for open transactions to end. `recompute`: compare `sample` records with what this
    function returns for their inputs. `as_json`, `least_score`: see `Recomputation`.
    `deletes`: which inputs are delete events; None if none are. `skips`: see `Inputs`.
    """

    open_wait_s: float = 25.0
    recompute: Recompute | None = None
    as_json: RecordAsJson = lambda value, _content_type: value
    least_score: LeastScore = lambda _finding: 0.0
    sample: int = _EVERYTHING
    deletes: DeleteEvents | None = None
    skips: Skips | None = None


def verify(
    config: KafkaConfig, options: VerifyOptions | None = None, progress: Progress = lambda _doing, _done, _total: None
) -> Report:
    """Verify the topics and the group of `config`. Only reads; raises BrokerError and SettingsError."""
    if config.output_topic == config.dead_letter_topic:
        raise SettingsError("a topic that is both output and dead-letter topic cannot be verified")
    with closing(Cluster(config)) as cluster:
        return _Verification(config, options or VerifyOptions(), progress, cluster).run()


class _Verification:
    """The steps of one verification, and what later steps need of earlier ones."""

    def __init__(self, config: KafkaConfig, options: VerifyOptions, progress: Progress, cluster: Cluster) -> None:
        self._config, self._options, self._progress, self._cluster = config, options, progress, cluster
        self._topic = config.input_topic
        self._checks = Checks()
        self._topic_id: str | None = None
        self._facts: Counter[str] = Counter()
        self._ledgers: dict[int, PartitionLedger] = {}
        self._outputs: dict[str, Outputs] = {}
        self._ranges: dict[str, Ranges] = {}

    def run(self) -> Report:
        """Run all steps, in the order that the module's docstring explains."""
        self._topic_id = self._cluster.topic_id(self._topic)
        due, _ = self._stable_offsets()
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        ends = stable_ends(
            topics,
            self._cluster,
            timeout_s=self._options.open_wait_s,
            check=self._checks.open_transactions,
            progress=self._progress,
        )
        self._open_ledgers()
        for topic in topics:
            self._read_outputs(topic, ends[topic])
        committed, pending = self._stable_offsets()
        for number, place in pending.items():
            self._checks.open_transactions.fail(Place(self._topic, number, place.offset if place else 0))
        self._judge(due, committed, published_ahead=_HELD_BACK if pending else "")
        self._recompute()
        self._count_outputs()
        self._end()
        checks = [check for check in self._checks if check is not self._checks.payload or self._options.recompute]
        return Report(tuple(checks), self._facts)

    # ---- committed offsets

    def _stable_offsets(self) -> tuple[PartitionOffsets, Committed]:
        """The group's offsets in the present topic, and those that an open transaction holds back."""
        committed, pending = self._cluster.stable_offsets(self._options.open_wait_s)
        return of_topic(committed, self._topic_id), pending

    # ---- outputs

    def _open_ledgers(self) -> None:
        """Runs after the ends of the outputs are known, so that the ledgers cover the input of every output."""
        lows = self._cluster.beginnings(self._topic)
        ends = self._cluster.ends(self._topic, committed_only=False)
        self._ledgers = {number: PartitionLedger(lows[number], end) for number, end in ends.items()}

    def _read_outputs(self, topic: str, ends: dict[int, int]) -> None:
        outputs = self._outputs[topic] = Outputs(
            checks=self._checks,
            ledgers=self._ledgers,
            input_topic=self._topic,
            topic_id=self._topic_id,
            dead_letters=topic == self._config.dead_letter_topic,
        )
        lows = self._cluster.beginnings(topic)
        ranges = self._ranges[topic] = {number: (lows[number], end) for number, end in ends.items()}
        with self._reader() as reader:
            for message in reader.read(topic, ranges, f"reading {topic}"):
                outputs.take(message)

    # ---- judging

    def _judge(self, due: PartitionOffsets, committed: PartitionOffsets, *, published_ahead: str) -> None:
        cluster, topic = self._cluster, self._topic
        begins, stable = cluster.beginnings(topic), cluster.ends(topic, committed_only=True)
        self._note_committed(committed, begins, cluster.ends(topic, committed_only=False))
        ranges = {number: (begins[number], min(committed.get(number) or 0, stable[number])) for number in self._ledgers}
        inputs = Inputs(self._checks, self._ledgers, topic, self._options.deletes, self._options.skips)
        with self._reader() as reader:
            for message in reader.read(topic, ranges, f"reading {topic}", inputs.take_unread):
                inputs.take(message)
        self._facts["inputs that articles.transform skips"] += inputs.skipped
        doubts = Doubts(self._missing_outputs(), self._missing_inputs(), published_ahead)
        beginnings = {each: cluster.beginnings(each) for each in self._outputs}
        judge = Judge(self._checks, topic, doubts)
        for number, ledger in self._ledgers.items():
            judged = JudgedRange(
                due=due.get(number) or 0,
                committed=committed.get(number) or begins[number],
                begins=begins[number],
                outputs_begin=self._outputs_begin(number, beginnings),
            )
            judge.judge(number, ledger, judged)
            self._facts["committed inputs"] += ledger.inputs(judged.committed)
        self._facts["inputs whose output may be deleted"] += judge.excused

    def _note_committed(self, committed: PartitionOffsets, begins: dict[int, int], ends: dict[int, int]) -> None:
        check = self._checks.committed_ahead
        for number, end in ends.items():
            offset = committed.get(number)
            check.note(Place(self._topic, number, offset or 0), ok=(offset or 0) <= end)
            self._facts["offsets not committed yet"] += max(0, end - max(offset or 0, begins[number]))
            self._facts["offsets deleted before they were committed"] += max(0, begins[number] - (offset or 0))

    def _missing_outputs(self) -> str:
        if self._checks.open_transactions.failed:
            return "an open transaction hides what was written after it"
        compacted = [topic for topic in self._outputs if self._cluster.is_compacted(topic)]
        return f"{' and '.join(compacted)}: compaction may have removed outputs" if compacted else ""

    def _missing_inputs(self) -> str:
        compacted = self._cluster.is_compacted(self._topic)
        return f"{self._topic}: compaction may have removed inputs" if compacted else ""

    def _outputs_begin(self, number: int, beginnings: Mapping[str, dict[int, int]]) -> int:
        """The source offset below which retention may have deleted outputs of an input partition; 0 if it has not."""
        begin = 0
        for topic, outputs in self._outputs.items():
            lows = beginnings[topic]
            relevant = {number: lows[number]} if len(lows) == len(self._ledgers) else lows
            if outputs.is_cut(relevant):
                begin = max(begin, outputs.oldest.get(number, _EVERYTHING))
        return begin

    # ---- payload, and the end

    def _recompute(self) -> None:
        recompute, topic = self._options.recompute, self._config.output_topic
        if recompute is None:
            return
        with self._reader() as records, self._reader() as articles:
            payload = Recomputation(
                check=self._checks.payload,
                recompute=recompute,
                as_json=self._options.as_json,
                least_score=self._options.least_score,
                records=records,
                articles=articles,
                input_topic=self._topic,
                topic_id=self._topic_id,
            )
            payload.run(topic, self._ranges[topic], chosen_of(self._outputs[topic].values, self._options.sample))
        self._facts["drawn records of another model"] += payload.other_models
        self._facts["drawn records whose input is gone"] += payload.gone

    def _count_outputs(self) -> None:
        for outputs in self._outputs.values():
            self._facts.update(outputs.counts)

    def _end(self) -> None:
        """Raise BrokerError if the input topic is not the one that was read."""
        if self._cluster.topic_id(self._topic) != self._topic_id:
            raise BrokerError(f"the topic '{self._topic}' was created again while it was verified: verify once more")

    def _reader(self) -> closing[RangeReader]:
        return closing(RangeReader(self._config, committed_only=True, progress=self._progress))


_VERSION = "enricher/1"
_TOPIC_ID = "topic-id="


_PENDING_S = 1.0
_ASK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The commit of a group for a partition. `topic_id`: that of its metadata, None if they name none."""

    offset: int
    topic_id: str | None = None


Committed = Mapping[int, CommittedOffset | None]
"""The committed offset of each partition; None if there is none."""


def topic_id_in(metadata: str | None) -> str | None:
    """The topic id in a committed offset's metadata (`enricher/1 topic-id=... attempts=...`), or None."""
    version, *fields = (metadata or "").split(" ")
    found = [field.removeprefix(_TOPIC_ID) for field in fields if field.startswith(_TOPIC_ID)]
    return found[-1] or None if version == _VERSION and found else None


def committed_of(answer: Iterable[TopicPartition]) -> dict[int, CommittedOffset | None]:
    """The client's answer by partition."""
    return {
        tp.partition: CommittedOffset(tp.offset, topic_id_in(tp.metadata)) if tp.offset >= 0 else None for tp in answer
    }


def of_topic(committed: Committed, topic_id: str | None) -> dict[int, int | None]:
    """The offsets by partition; one that names another topic id counts as none."""
    return {
        number: place.offset if place is not None and same_topic(place.topic_id, topic_id) else None
        for number, place in committed.items()
    }


class Cluster(Inspector):
    """Asks about the topics and the group of `config`, with its own clients."""

    def __init__(self, config: KafkaConfig) -> None:
        super().__init__(config)
        self._stable = lone_consumer(config, self._complaint, {"isolation.level": "read_committed"})

    def offsets_now(self) -> Committed:
        """The group's committed offsets in the input topic now, without those of pending transactions."""
        return committed_of(self.committed_offsets(self._config.input_topic))

    def stable_offsets(self, timeout_s: float) -> tuple[Committed, Committed]:
        """The committed offsets once no pending transaction holds any back, and the offsets that are still held back.

        Waits for pending transactions for at most `timeout_s`; the second part is empty if all have ended.
        """
        numbers = self.partitions(self._config.input_topic)
        answer = self._stable_offsets(numbers, timeout_s)
        if answer is not None:
            return committed_of(answer), {}
        pending = [number for number in numbers if self._stable_offsets([number], _PENDING_S) is None]
        committed = self.offsets_now()
        return committed, {number: committed[number] for number in pending}

    def close(self) -> None:
        """Close the connections."""
        self._stable.close()
        super().close()

    def _stable_offsets(self, numbers: Sequence[int], timeout_s: float) -> list[TopicPartition] | None:
        """The offsets; None if the broker gives none while a transaction with offsets of these partitions is pending."""
        tps = [TopicPartition(self._config.input_topic, number) for number in numbers]
        doing = f"asking for the committed offsets of the group '{self._config.group_id}'"
        with broker_errors(self._stable, doing, self._complaint):
            try:
                return without_errors(self._stable.committed(tps, timeout=timeout_s))
            except KafkaException as exception:
                if exception.args[0].code() == KafkaError._TIMED_OUT:  # noqa: SLF001  the client's name
                    return None
                raise


def stable_ends(
    topics: Iterable[str], cluster: Cluster, *, timeout_s: float, check: Check, progress: Progress
) -> dict[str, dict[int, int]]:
    """The ends of the topics' partitions as they are now, once committed readers can read that far.

    If they still cannot after `timeout_s`, a transaction was left open: that fails `check`, and the end is the last stable
    offset. Newer transactions that are open behind these ends do not matter.
    """
    ends = {topic: cluster.ends(topic, committed_only=False) for topic in topics}
    deadline = Deadline(timeout_s)
    for topic, wanted in ends.items():
        check.checked += len(wanted)
        for number, stable in _has_reached(topic, wanted, cluster, deadline, progress).items():
            if stable < wanted[number]:
                check.fail(Place(topic, number, stable))
                wanted[number] = stable
    return ends


def _has_reached(
    topic: str, wanted: dict[int, int], cluster: Cluster, deadline: Deadline, progress: Progress
) -> dict[int, int]:
    """The last stable offsets, once they have reached `wanted` or the time is over."""
    stable: dict[int, int] = {}

    def done() -> bool:
        stable.update(cluster.ends(topic, committed_only=True))
        ready = sum(stable[number] >= end for number, end in wanted.items())
        if ready < len(wanted):
            progress(f"waiting for open transactions of {topic}, partitions", ready, len(wanted))
        return ready == len(wanted)

    until(done, deadline, pause_s=_ASK_AGAIN_S)
    return {number: stable[number] for number in wanted}
