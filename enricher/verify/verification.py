"""One verification from beginning to end: what is asked and read, and in which order.

The order is what makes it right while workers run: committed offsets, then the ends of the outputs (all that belongs to
those offsets lies below), then the outputs, then committed offsets again (all that was read belongs below them), then
the input up to there. Inputs below the first must have an output; outputs at or above the second must not be.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Final

from enricher.errors import SettingsError
from enricher.kafka.client import KafkaConfig
from enricher.verify.cluster import Cluster
from enricher.verify.findings import Check, Checks, Place, Report
from enricher.verify.inputs import Doubts, Inputs, Limits, Verdict
from enricher.verify.ledger import PartitionLedger
from enricher.verify.order import ByKey, ByPartition
from enricher.verify.outputs import Outputs
from enricher.verify.payload import PayloadCheck, Recompute, chosen_of
from enricher.verify.reading import Progress, RangeReader, Ranges
from enricher.verify.sampling import wait_for_group, watch_for
from enricher.verify.settling import stable_ends
from enricher.verify.watch import Committed, OffsetWatch

_HELD_BACK = "an open transaction holds committed offsets back"
_EVERYTHING: Final = 2**63 - 1


def silent(_doing: str, _done: int, _total: int) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a verification is to do beside its static checks.

    `settle_s`: how long open transactions have to come to their end. `wait_s`: how long the group has to catch up; None
    judges what it has committed. `watch_s`: how long to sample committed offsets before. `recompute`: how many records
    (`sample`) are compared with what it gives.
    """

    settle_s: float = 25.0
    wait_s: float | None = None
    watch_s: float = 0.0
    recompute: Recompute | None = None
    sample: int = _EVERYTHING


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
        self._facts: dict[str, int] = {}
        self._ledgers: dict[int, PartitionLedger] = {}
        self._outputs: dict[str, Outputs] = {}
        self._ranges: dict[str, Ranges] = {}

    def run(self) -> Report:
        """All steps, in the order that the module explains."""
        self._follow()
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

    def _settled(self) -> tuple[Committed, Committed]:
        committed, pending = self._cluster.settled(self._wishes.settle_s)
        self._watch.note(committed)
        return committed, pending

    def _note_pending(self, pending: Committed) -> None:
        for number, offset in pending.items():
            self._checks.open_transactions.fail(Place(self._config.input_topic, number, offset or 0))

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

    def _judge(self, due: Committed, committed: Committed, *, published_ahead: str) -> None:
        cluster, topic = self._cluster, self._config.input_topic
        begins, stable = cluster.beginnings(topic), cluster.ends(topic, committed_only=True)
        self._note_committed(committed, begins, cluster.ends(topic, committed_only=False))
        ranges = {number: (begins[number], min(committed.get(number) or 0, stable[number])) for number in self._ledgers}
        inputs = Inputs(self._checks, self._ledgers, topic)
        with self._reader() as reader:
            for message in reader.read(topic, ranges, f"reading {topic}"):
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

    def _note_committed(self, committed: Committed, begins: dict[int, int], ends: dict[int, int]) -> None:
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
            if any(relevant.values()):
                begin = max(begin, outputs.oldest.get(number, _EVERYTHING))
        return begin

    # ---- payload, and the end

    def _recompute(self) -> None:
        recompute, topic = self._wishes.recompute, self._config.output_topic
        if recompute is None:
            return
        input_topic, check = self._config.input_topic, self._checks.payload
        with self._reader() as records, self._reader() as articles:
            payload = PayloadCheck(check, recompute, records=records, articles=articles, input_topic=input_topic)
            payload.run(topic, self._ranges[topic], chosen_of(self._outputs[topic].values, self._wishes.sample))
        self._count("drawn records of another model", payload.other_models)
        self._count("drawn records whose input is gone", payload.gone)

    def _count_outputs(self) -> None:
        for outputs in self._outputs.values():
            for name, count in outputs.counts.items():
                self._count(name, count)
        self._count("samples of committed offsets", self._watch.samples)

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
