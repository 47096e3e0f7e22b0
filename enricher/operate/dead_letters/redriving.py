"""One run of a redrive: judge the dead letters, look for newer records, send what is left, in rounds of bounded memory.

1. Read the dead letters from the first that is not settled to where the topic ended at the start. Keep the place of each
   that is to be sent, and a digest of its key.
2. Read the input once, from the lowest source offset on, for newer records of those keys.
3. Read those dead letters again, now with their values, and send them in transactions.

Inside each transaction, behind our records, the input is read once more up to them: a newer record that came meanwhile
aborts it. So no record ever lies behind a newer one of its key, however busy the input is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from confluent_kafka import Message

from enricher.errors import BrokerError, TransactionTrouble
from enricher.operate.dead_letters.letters import Letter, Selection, headers_to_send, input_headers, letter_of
from enricher.operate.dead_letters.newer import NewerRecords
from enricher.operate.dead_letters.sender import Outgoing, Overtaken, RefusedRecords, Sender
from enricher.operate.dead_letters.settled import Commit, SettledTopic
from enricher.operate.inspect.follow import RecordFinder
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.verify.committed import same_topic
from enricher.worker.kafka.reading.ranges import RangeReader
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

Ending = Literal[
    "sent", "superseded", "loop_guard", "not_available", "unchecked", "refused", "not_ours", "not_selected"
]
"""How a dead letter ends in one run. All but the first two are left: a later run finds them again."""

MOST_CANDIDATES = 100_000
"""Letters of one round: their places and keys take 33 MB. Each further round reads the input once more."""
MOST_RECORDS = 500
MOST_BYTES = 900_000
"""Most bytes of a transaction with several records: they fit into one batch of the client (`batch.size`)."""


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """`limit`: send at most this many. `most_redrives`: leave a letter whose input was redriven so often.

    `unchecked`: also send letters for which the input no longer shows whether a newer record came. `wait`: called with the
    number of records before each transaction; it may block.
    """

    selection: Selection = field(default_factory=Selection)
    limit: int | None = None
    most_redrives: int = 3
    unchecked: bool = False
    per_transaction: int = MOST_RECORDS
    wait: Callable[[int], None] = lambda _count: None


@dataclass(frozen=True, slots=True)
class Readers:
    """The clients that a run reads with. There are two readers, because one reads one topic at a time."""

    inspector: Inspector
    letters: RangeReader
    inputs: RangeReader
    finder: RecordFinder


@dataclass(frozen=True, slots=True)
class _Ready:
    """A letter, and its record with key, value and headers of its input."""

    letter: Letter
    record: Outgoing

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") + 10 for name, value in self.record.headers)
        return len(self.record.key or b"") + len(self.record.value or b"") + headers


class Redrive:
    """One run. `committed`: what the redrive's group has committed. `sender`: None for a dry run, which writes nothing.

    `counts`: how the letters that were not settled before have ended, complete when `run` returns. `found`: how many of them
    there are. The constructor raises BrokerError, and FatalError if what is committed cannot be read.
    """

    def __init__(
        self,
        config: KafkaConfig,
        options: RedriveOptions,
        readers: Readers,
        *,
        sender: Sender | None,
        committed: Mapping[int, Commit],
    ) -> None:
        self._config = config
        self._options = options
        self._reader = readers.letters
        self._finder = readers.finder
        self._sender = sender
        inspector, topic = readers.inspector, config.dead_letter_topic
        self._newer = NewerRecords(readers.inputs, inspector, config.input_topic)
        self._topic_id = inspector.topic_id(config.input_topic)
        self._partitions = len(inspector.partitions(config.input_topic))
        topic_id, lows = inspector.topic_id(topic), inspector.beginnings(topic)
        self._ends = inspector.ends(topic, committed_only=True)
        self._settled = SettledTopic(topic, topic_id, committed, self._ends)
        self._judged = {number: max(lows[number], start) for number, start in self._settled.starts.items()}
        """The next letter of each partition to judge."""
        self._candidates: set[tuple[int, int]] = set()
        """The places of this round's candidates: partition and offset."""
        self._first_round = True
        self.found = 0
        self.counts: Counter[Ending] = Counter()

    def run(self) -> None:
        """Redrive. Raises BrokerError, Fenced, RecoveryExhausted; what was committed until then stays."""
        while not self._is_full and self._judge_letters():
            self._newer.read_all()
            for batch in self._batches():
                self._send(batch)
                if self._is_full:
                    break
            self._newer.forget()
        if self._settled.changed:
            self._commit([])

    @property
    def _is_full(self) -> bool:
        return self._options.limit is not None and self.counts["sent"] >= self._options.limit

    def _judge_letters(self) -> bool:
        """Collect the candidates of the next round; False if there are none."""
        self._candidates.clear()
        judged = dict(self._judged)
        for message in self._read_letters({n: (start, self._ends[n]) for n, start in judged.items()}, "reading"):
            letter = self._letter_of(message)
            if letter is None:
                self.counts["not_ours"] += self._first_round
                continue
            # Newer letters show newer inputs, too, which the input itself may have lost.
            self._newer.note(letter.source.partition, message.key(), letter.source.offset)
            if self._first_round:
                self._settled.note(letter)
                self.found += not self._settled.has(letter)
            if len(self._candidates) < MOST_CANDIDATES and letter.offset >= judged[letter.number]:
                judged[letter.number] = letter.offset + 1
                if not self._settled.has(letter):
                    self._judge(letter, message)
        self._first_round, self._judged = False, judged
        return bool(self._candidates)

    def _letter_of(self, message: Message) -> Letter | None:
        """The dead letter in a message; None if it is none of this input topic."""
        letter = letter_of(message)
        if letter is None or letter.source.topic != self._config.input_topic:
            return None
        return letter if same_topic(letter.source.topic_id, self._topic_id) else None

    def _judge(self, letter: Letter, message: Message) -> None:
        """Count a letter, or make it a candidate."""
        if ending := self._ending_of(letter):
            self.counts[ending] += 1
            return
        key, source = message.key(), letter.source
        if source.omitted.key_bytes is not None:
            if (whole := self._input_of(letter, message)) is None:
                self.counts["not_available"] += 1
                return
            key = whole.key
        self._newer.ask_about(source.partition, key, source.offset)
        self._candidates.add((letter.number, letter.offset))

    def _ending_of(self, letter: Letter) -> Ending | None:
        """How a letter ends that is not even a candidate; None if it is one."""
        if not self._options.selection.has(letter):
            return "not_selected"
        if letter.redrives >= self._options.most_redrives:
            return "loop_guard"
        if letter.source.omitted.unreadable or letter.source.partition >= self._partitions:
            return "not_available"
        return None

    def _read_letters(self, ranges: Mapping[int, tuple[int, int]], doing: str) -> Iterable[Message]:
        topic = self._config.dead_letter_topic
        return self._reader.read(topic, ranges, f"{doing} dead letters of '{topic}'")

    def _batches(self) -> Iterator[list[_Ready]]:
        """The candidates that are still to be sent, for a transaction each."""
        ranges: dict[int, tuple[int, int]] = {}
        for number, offset in self._candidates:
            start, stop = ranges.get(number, (offset, offset + 1))
            ranges[number] = min(start, offset), max(stop, offset + 1)
        limit, most = self._options.limit, self._options.per_transaction
        batch, size_bytes = list[_Ready](), 0
        for message in self._read_letters(ranges, "sending"):
            if (message.partition(), message.offset()) not in self._candidates:
                continue
            if (ready := self._ready(message)) is None:
                continue
            room = most if limit is None else min(most, limit - self.counts["sent"])
            if batch and (len(batch) >= room or size_bytes + ready.size_bytes > MOST_BYTES):
                yield batch
                batch, size_bytes = [], 0
            batch.append(ready)
            size_bytes += ready.size_bytes
        if batch:
            yield batch

    def _ready(self, message: Message) -> _Ready | None:
        """The letter in a message with its record; None, and counted, if it is not sent."""
        letter = self._letter_of(message)
        if letter is None:
            topic = self._config.dead_letter_topic
            raise BrokerError(f"the topic '{topic}' was created again, or its records were replaced: redrive once more")
        source = letter.source
        whole = self._input_of(letter, message)
        if whole is None:
            self.counts["not_available"] += 1
            return None
        if self._is_superseded(letter, whole.key):
            return None
        if not self._options.unchecked and self._newer.may_have_lost(source.partition, whole.key, source.offset):
            self.counts["unchecked"] += 1
            return None
        return _Ready(letter, Outgoing(source.partition, whole.key, whole.value, headers_to_send(whole.headers)))

    def _input_of(self, letter: Letter, message: Message) -> RawRecord | None:
        """The input of a letter, from the input topic if the letter has not all of it; None if it is not there any more."""
        source = letter.source
        place = Partition(source.topic, source.partition)
        if letter.is_complete:
            return RawRecord(place, source.offset, message.key(), message.value(), input_headers(message))
        found = self._finder.find(place, source.offset, source.topic_id)
        if found is None or source.omitted.value_bytes not in {None, len(found.value or b"")}:
            return None
        # A letter that has its key names the input of another key only if no worker wrote it.
        return found if source.omitted.key_bytes is not None or found.key == message.key() else None

    def _is_superseded(self, letter: Letter, key: bytes | None) -> bool:
        """Whether a newer record is known; then the letter is settled and counted."""
        source = letter.source
        if not self._newer.has_newer(source.partition, key, source.offset):
            return False
        self.counts["superseded"] += 1
        self._settled.settle([letter])
        return True

    def _send(self, batch: list[_Ready]) -> None:
        """Send what is not superseded by now. Each attempt that is overtaken leaves fewer."""
        self._options.wait(len(batch))
        while batch:
            self._newer.read_on({each.record.number for each in batch})
            batch = [each for each in batch if not self._is_superseded(each.letter, each.record.key)]
            try:
                self._send_and_settle(batch)
            except Overtaken:
                continue
            except RefusedRecords as refusal:
                self._send_one_by_one(batch, refusal)
            return

    def _send_and_settle(self, batch: list[_Ready]) -> None:
        letters = [each.letter for each in batch]
        self._settled.settle(letters)
        try:
            if batch:
                self._commit(batch)
        except BaseException:
            self._settled.settle(letters, is_settled=False)
            raise
        self.counts["sent"] += len(batch)

    def _send_one_by_one(self, batch: list[_Ready], refusal: RefusedRecords) -> None:
        if len(batch) > 1:
            for each in batch:
                self._send([each])
            return
        [each] = batch
        self.counts["refused"] += 1
        log.warning(
            "the input topic refuses the dead letter %d:%d: %s", each.letter.number, each.letter.offset, refusal
        )

    def _commit(self, batch: list[_Ready]) -> None:
        """One transaction with these records and with all that was settled since the last one; none in a dry run."""
        if self._sender:
            records = [each.record for each in batch]
            self._sender.send(records, self._settled.commits(), partial(self._require_newest, batch))
            self._settled.note_committed()

    def _require_newest(self, batch: list[_Ready], firsts: Mapping[int, int]) -> None:
        """Inside the transaction: read the input up to our records. Raises Overtaken if one of them is superseded by now.

        Raises TransactionTrouble if somebody's open transaction hides what is before them.
        """
        deadline = Deadline(self._config.transaction_timeout_s / 3)
        if not self._newer.read_to(firsts, deadline):
            raise TransactionTrouble("an open transaction hides records of the input, some of which may be newer")
        for each in batch:
            if self._newer.has_newer(each.record.number, each.record.key, each.letter.source.offset):
                raise Overtaken("a newer record of a key came meanwhile")
