"""One verification: its questions and reads, in their order.

The order makes it correct while workers run: first committed offsets, then the ends of the outputs (all outputs of inputs
below those offsets are before these ends), then the outputs, then committed offsets again (the inputs of all outputs read
are below them), then the input up to there. Inputs below the first offsets must have an output; there must be no output of
an input at or above the second ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from enricher.errors import BrokerError, SettingsError
from enricher.operate.verify.contract import DeleteEvents
from enricher.operate.verify.group_offsets import (
    Cluster,
    Committed,
    of_topic,
    stable_ends,
)
from enricher.operate.verify.ledger import (
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
from enricher.worker.kafka.partition_reader import Ranges
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader

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
