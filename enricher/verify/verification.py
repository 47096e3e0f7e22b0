"""One verification from beginning to end: what is asked and read, and in which order.

The order is what makes it right while workers run: committed offsets, then the ends of the outputs (all that belongs to
those offsets lies below), then the outputs, then committed offsets again (all that was read belongs below them), then
the input up to there. Inputs below the first must have an output; outputs at or above the second must not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from enricher.errors import BrokerError, SettingsError
from enricher.kafka.client import KafkaConfig
from enricher.verify.cluster import Cluster
from enricher.verify.committed import Committed, of_topic
from enricher.verify.findings import Check, Checks, Place, Report
from enricher.verify.inputs import Doubts, Inputs, Limits, Verdict
from enricher.verify.ledger import PartitionLedger
from enricher.verify.order import ByKey, ByPartition
from enricher.verify.outputs import Outputs
from enricher.verify.payload import PayloadCheck, chosen_of
from enricher.verify.reading import Progress, RangeReader, Ranges
from enricher.verify.sampling import wait_for_group, watch_for
from enricher.verify.settling import stable_ends
from enricher.verify.watch import OffsetWatch
from enricher.verify.wishes import EVERYTHING, Wishes

_HELD_BACK = "an open transaction holds committed offsets back"
Offsets = Mapping[int, int | None]


def silent(_doing: str, _done: int, _total: int) -> None:
    """Progress that nobody looks at."""


def verify(config: KafkaConfig, wishes: Wishes | None = None, progress: Progress = silent) -> Report:
    """Verify the topics and the group of `config`. Reads only; raises BrokerError and SettingsError."""
    if config.output_topic == config.dead_letter_topic:
        raise SettingsError("output and dead letters in one topic cannot be verified")
    with closing(Cluster(config)) as cluster:
        return _Verification(config, wishes or Wishes(), progress, cluster).run()


class _Verification:
    """The steps of one verification; what one finds and a later one needs."""

    def __init__(self, config: KafkaConfig, wishes: Wishes, progress: Progress, cluster: Cluster) -> None:
        self._config, self._wishes, self._progress, self._cluster = config, wishes, progress, cluster
        self._checks = Checks()
        self._watch = OffsetWatch(config.input_topic, self._checks.went_back)
        self._topic_id: str | None = None
        self._facts: dict[str, int] = {}
        self._ledgers: dict[int, PartitionLedger] = {}
        self._outputs: dict[str, Outputs] = {}
        self._ranges: dict[str, Ranges] = {}

    def run(self) -> Report:
        """All steps, in the order that the module explains."""
        self._follow()
        self._topic_id = self._cluster.topic_id(self._config.input_topic)
        due, _ = self._settled()
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        ends = stable_ends(
            topics,
            self._cluster,
            timeout_s=self._wishes.settle_s,
            check=self._checks.open_transactions,
            progress=self._progress,
        )
        self._open_ledgers()
        for topic in topics:
            self._read_outputs(topic, ends[topic])
        self._count_aborted()
        committed, pending = self._settled()
        self._note_pending(pending)
        self._judge(due, committed, published_ahead=_HELD_BACK if pending else "")
        self._recompute()
        self._count_outputs()
        self._end()
        return Report(tuple(check for check in self._checks if self._is_asked(check)), self._facts)

    # ---- committed offsets

    def _follow(self) -> None:
        """Sample committed offsets for as long as asked to."""
        wishes, check = self._wishes, self._checks.caught_up
        if wishes.watch_s:
            watch_for(wishes.watch_s, self._cluster, self._watch, self._progress)
        if wishes.wait_s is not None:
            topic = self._config.input_topic
            late = wait_for_group(topic, wishes.wait_s, self._cluster, self._watch, self._progress)
            check.checked = len(self._cluster.partitions(topic))
            for number, end in late.items():
                check.fail(Place(topic, number, end))

    def _settled(self) -> tuple[Offsets, Committed]:
        """The group's offsets in the topic as it is now, and those that an open transaction holds back."""
        committed, pending = self._cluster.settled(self._wishes.settle_s)
        self._watch.note(committed)
        return of_topic(committed, self._topic_id), pending

    def _note_pending(self, pending: Committed) -> None:
        for number, place in pending.items():
            self._checks.open_transactions.fail(Place(self._config.input_topic, number, place.offset if place else 0))

    # ---- outputs

    def _open_ledgers(self) -> None:
        """Asked after the ends of the outputs, so that every input with an output in there lies in a ledger."""
        topic = self._config.input_topic
        lows, ends = self._cluster.beginnings(topic), self._cluster.ends(topic, committed_only=False)
        self._ledgers = {number: PartitionLedger(lows[number], end) for number, end in ends.items()}

    def _read_outputs(self, topic: str, ends: dict[int, int]) -> None:
        same = len(ends) == len(self._ledgers)
        outputs = self._outputs[topic] = Outputs(
            self._checks,
            self._ledgers,
            ByPartition() if same else ByKey(),
            input_topic=self._config.input_topic,
            topic_id=self._topic_id,
            dead_letters=topic == self._config.dead_letter_topic,
            same_partitions=same,
        )
        lows = self._cluster.beginnings(topic)
        ranges = self._ranges[topic] = {number: (lows[number], end) for number, end in ends.items()}
        with self._reader() as reader:
            for message in reader.read(topic, ranges, f"reading {topic}"):
                outputs.take(message)

    def _count_aborted(self) -> None:
        """How much of the outputs is of aborted transactions: how much of the promise was exercised."""
        with self._reader(committed_only=False) as reader:
            for topic, ranges in self._ranges.items():
                seen = sum(1 for _ in reader.read(topic, ranges, f"counting aborted records of {topic}"))
                self._count("aborted outputs", max(0, seen - self._outputs[topic].total))

    # ---- judging

    def _judge(self, due: Offsets, committed: Offsets, *, published_ahead: str) -> None:
        cluster, topic = self._cluster, self._config.input_topic
        begins, stable = cluster.beginnings(topic), cluster.ends(topic, committed_only=True)
        self._note_committed(committed, begins, cluster.ends(topic, committed_only=False))
        ranges = {number: (begins[number], min(committed.get(number) or 0, stable[number])) for number in self._ledgers}
        inputs = Inputs(self._checks, self._ledgers, topic)
        with self._reader() as reader:
            for message in reader.read(topic, ranges, f"reading {topic}", inputs.take_unread):
                inputs.take(message)
        doubts = Doubts(self._missing_outputs(), self._missing_inputs(), published_ahead)
        verdict = Verdict(self._checks, topic, doubts)
        for number, ledger in self._ledgers.items():
            limits = Limits(
                due=due.get(number) or 0,
                committed=committed.get(number) or begins[number],
                begins=begins[number],
                outputs_begin=self._outputs_begin(number),
            )
            verdict.judge(number, ledger, limits)
            self._count("committed inputs", ledger.inputs(limits.committed))
        self._count("inputs whose output may be deleted", verdict.excused)

    def _note_committed(self, committed: Offsets, begins: dict[int, int], ends: dict[int, int]) -> None:
        check = self._checks.committed_ahead
        for number, end in ends.items():
            offset = committed.get(number)
            check.checked += 1
            if offset is not None and offset > end:
                check.fail(Place(self._config.input_topic, number, offset))
            self._count("offsets not committed yet", max(0, end - max(offset or 0, begins[number])))
            self._count("offsets deleted before they were committed", max(0, begins[number] - (offset or 0)))

    def _missing_outputs(self) -> str:
        if self._checks.open_transactions.failed:
            return "an open transaction hides what is written behind it"
        compacted = [topic for topic in self._outputs if self._cluster.compacted(topic)]
        return f"{' and '.join(compacted)}: compaction may have removed outputs" if compacted else ""

    def _missing_inputs(self) -> str:
        topic = self._config.input_topic
        return f"{topic}: compaction may have removed inputs" if self._cluster.compacted(topic) else ""

    def _outputs_begin(self, number: int) -> int:
        """The source offset below which retention may have deleted outputs of an input partition; 0 where it has not."""
        begin = 0
        for topic, outputs in self._outputs.items():
            lows = self._cluster.beginnings(topic)
            relevant = {number: lows[number]} if len(lows) == len(self._ledgers) else lows
            if outputs.is_cut(relevant):
                begin = max(begin, outputs.oldest.get(number, EVERYTHING))
        return begin

    # ---- payload, and the end

    def _recompute(self) -> None:
        recompute, topic = self._wishes.recompute, self._config.output_topic
        if recompute is None:
            return
        input_topic, check = self._config.input_topic, self._checks.payload
        with self._reader() as records, self._reader() as articles:
            payload = PayloadCheck(
                check,
                recompute,
                records=records,
                articles=articles,
                input_topic=input_topic,
                topic_id=self._topic_id,
            )
            payload.run(topic, self._ranges[topic], chosen_of(self._outputs[topic].values, self._wishes.sample))
        self._count("drawn records of another model", payload.other_models)
        self._count("drawn records whose input is gone", payload.gone)

    def _count_outputs(self) -> None:
        for outputs in self._outputs.values():
            for name, count in outputs.counts.items():
                self._count(name, count)
        self._count("samples of committed offsets", self._watch.samples)

    def _end(self) -> None:
        """Judge what was watched. Raises BrokerError where the input topic is not the one that was read."""
        topic = self._config.input_topic
        topic_id = self._cluster.topic_id(topic)
        self._watch.finish(topic_id)
        if topic_id != self._topic_id:
            raise BrokerError(f"the topic '{topic}' was created again while it was verified: verify once more")

    def _count(self, fact: str, count: int) -> None:
        self._facts[fact] = self._facts.get(fact, 0) + count

    def _is_asked(self, check: Check) -> bool:
        asked = {
            "caught up": self._wishes.wait_s is not None,
            "payload": self._wishes.recompute is not None,
            "partition": any(outputs.same_partitions for outputs in self._outputs.values()),
        }
        return asked.get(check.name, True)

    def _reader(self, *, committed_only: bool = True) -> closing[RangeReader]:
        return closing(RangeReader(self._config, committed_only=committed_only, progress=self._progress))
