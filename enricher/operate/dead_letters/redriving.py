"""One run of a redrive: judge the dead letters, look for newer records, send what is left.

1. Read the dead letters from the committed offset to where the topic ended at the start. Keep the place of each that is to
   be sent, and a digest of its key.
2. Read the input once, from the lowest source offset on, for newer records of those keys, and for records of those letters.
3. Read those dead letters again, now with their values, and send them in transactions.

One look is not enough: an article that is updated between the look and our record would lie before its older version, and
that would win. So inside each transaction, behind our records, the input is read on up to them, and what came meanwhile
aborts it. No record ever lies behind a newer one of its key, nor behind its own copy, however busy the input is.

A transaction that fails for another reason ends the run. Whether it took effect, the next run sees in the input.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from confluent_kafka import Message

from enricher.errors import BrokerError, FatalError, TransactionTrouble
from enricher.operate.dead_letters.letters import (
    Letter,
    NewerRecords,
    Progress,
    Selection,
    committed_starts,
    headers_to_send,
    input_headers,
    letter_of,
)
from enricher.operate.dead_letters.sender import Outgoing, Overtaken, RefusedRecords, Sender
from enricher.operate.inspector import Inspector, RecordFinder
from enricher.operate.verify.contract import same_topic
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

Ending = Literal[
    "sent",
    "sent_before",
    "superseded",
    "loop_guard",
    "not_available",
    "unchecked",
    "refused",
    "not_ours",
    "not_selected",
]
"""How a dead letter ends in one run. The first three endings, and records that are not ours, are final; a later run finds
all other letters."""

MOST_CANDIDATES = 100_000
"""Letters of one run: their places, names and keys take 50 MB."""
MOST_RECORDS = 500
MOST_BYTES = 900_000
"""Most bytes of a transaction with several records: they fit into one batch of the client (`batch.size`)."""


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """`limit`: send at most this many. `most_redrives`: leave a letter whose input was redriven so often.

    `unchecked`: also send letters for which the input no longer shows whether a newer record came, or their own. `wait`:
    called with the number of records before each transaction; it may block.
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
    """One run. `sender`: None for a dry run, which writes nothing.

    `counts`: how the letters behind the committed offsets have ended, complete when `run` returns. `found`: how many of them
    there are. `committed`: what the redrive's group has committed, by partition. The constructor raises BrokerError, and
    FatalError if what is committed lies beyond the end.
    """

    def __init__(
        self,
        config: KafkaConfig,
        options: RedriveOptions,
        readers: Readers,
        *,
        sender: Sender | None,
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
        self._letters_id = inspector.topic_id(topic)
        self._ends = inspector.ends(topic, committed_only=True)
        self.committed = committed_starts(inspector.committed_offsets(topic), self._letters_id)
        for number, at in self.committed.items():
            if at > self._ends[number]:
                raise FatalError(_BEYOND.format(number=number, topic=topic))
        self._redriven_before = frozenset(self.committed)
        lows = inspector.beginnings(topic)
        self._starts = {number: max(low, self.committed.get(number, low)) for number, low in lows.items()}
        self._progress = Progress(self._starts)
        self._candidates: set[tuple[int, int]] = set()
        """The places of the letters to send: partition and offset."""
        self.found = 0
        self.counts: Counter[Ending] = Counter()

    def run(self) -> None:
        """Redrive. Raises BrokerError, Fenced, RecoveryExhausted; what was committed until then stays."""
        self._judge_letters()
        if self._candidates:
            self._newer.read_all()
        for batch in self._batches():
            self._send(batch)
            if self._is_full:
                return
        for number, end in self._ends.items():
            self._progress.pass_by(number, end)
        self._commit([])

    @property
    def _is_full(self) -> bool:
        return self._options.limit is not None and self.counts["sent"] >= self._options.limit

    def _judge_letters(self) -> None:
        """Collect the candidates, and leave the other letters."""
        for message in self._read_letters({n: (start, self._ends[n]) for n, start in self._starts.items()}, "reading"):
            letter = self._letter_of(message)
            if letter is None:
                self.counts["not_ours"] += 1
                continue
            # Newer letters show newer inputs, too, which the input itself may have lost.
            self._newer.note(letter.source.partition, message.key(), letter.source.offset)
            self.found += 1
            if len(self._candidates) < MOST_CANDIDATES:
                self._judge(letter, message)
            else:
                self._progress.leave(letter)

    def _letter_of(self, message: Message) -> Letter | None:
        """The dead letter in a message; None if it is none of this input topic."""
        letter = letter_of(message)
        if letter is None or letter.source.topic != self._config.input_topic:
            return None
        return letter if same_topic(letter.source.topic_id, self._topic_id) else None

    def _judge(self, letter: Letter, message: Message) -> None:
        """Leave a letter, or make it a candidate."""
        if ending := self._ending_of(letter):
            self._leave(letter, ending)
            return
        key, source = message.key(), letter.source
        if source.omitted.key_bytes is not None:
            if (whole := self._input_of(letter, message)) is None:
                self._leave(letter, "not_available")
                return
            key = whole.key
        self._newer.ask_about(self._name_of(letter), source.partition, key, source.offset)
        self._candidates.add((letter.number, letter.offset))

    def _name_of(self, letter: Letter) -> bytes:
        return f"{self._letters_id}:{letter.number}:{letter.offset}".encode()

    def _leave(self, letter: Letter, ending: Ending) -> None:
        self.counts[ending] += 1
        self._progress.leave(letter)

    def _ending_of(self, letter: Letter) -> Ending | None:
        """The reason why a letter is not redriven; None if it may be."""
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
            number, offset = message.partition() or 0, message.offset() or 0
            if (number, offset) not in self._candidates:
                continue
            if ready := self._ready(message):
                room = most if limit is None else min(most, limit - self.counts["sent"])
                if batch and (len(batch) >= room or size_bytes + ready.size_bytes > MOST_BYTES):
                    yield batch
                    batch, size_bytes = [], 0
                batch.append(ready)
                size_bytes += ready.size_bytes
            self._progress.pass_by(number, offset + 1)
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
            self._leave(letter, "not_available")
            return None
        record = Outgoing(
            source.partition, whole.key, whole.value, headers_to_send(whole.headers, self._name_of(letter))
        )
        ready = _Ready(letter, record)
        if self._is_settled(ready):
            return None
        # Without a key there is no newer record, but an earlier redrive may have sent this letter.
        in_question = whole.key is not None or letter.number in self._redriven_before
        if in_question and not self._options.unchecked and self._newer.may_have_lost(source.partition, source.offset):
            self._leave(letter, "unchecked")
            return None
        return ready

    def _input_of(self, letter: Letter, message: Message) -> RawRecord | None:
        """The input of a letter, from the input topic if the letter has not all of it; None if it is not there any more.

        That the topic is still the one of the letter is confirmed in the transaction.
        """
        source = letter.source
        place = Partition(source.topic, source.partition)
        if letter.is_complete:
            return RawRecord(place, source.offset, message.key(), message.value(), input_headers(message))
        found = self._finder.find(place, source.offset)
        if found is None or source.omitted.value_bytes not in {None, len(found.value or b"")}:
            return None
        # A letter that has its key names the input of another key only if no worker wrote it.
        return found if source.omitted.key_bytes is not None or found.key == message.key() else None

    def _is_settled(self, ready: _Ready) -> bool:
        """Whether the letter was sent before, or a newer record is known; counts it if so."""
        ending = self._settled_as(ready)
        if ending:
            self.counts[ending] += 1
        return ending is not None

    def _settled_as(self, ready: _Ready) -> Ending | None:
        if self._newer.has_letter(self._name_of(ready.letter)):
            return "sent_before"
        newer = self._newer.has_newer(ready.record.number, ready.record.key, ready.letter.source.offset)
        return "superseded" if newer else None

    def _send(self, batch: list[_Ready], waiting: Sequence[_Ready] = ()) -> None:
        """Send letters that are not settled by now. Each attempt that is overtaken leaves fewer. `waiting`: sent later."""
        self._options.wait(len(batch))
        while batch:
            try:
                self._commit(batch, waiting)
            except Overtaken:
                batch = [each for each in batch if not self._is_settled(each)]
            except RefusedRecords as refusal:
                self._send_one_by_one(batch, refusal)
                return
            else:
                self.counts["sent"] += len(batch)
                return

    def _send_one_by_one(self, batch: list[_Ready], refusal: RefusedRecords) -> None:
        if len(batch) > 1:
            for index, each in enumerate(batch, 1):
                self._send([each], batch[index:])
            return
        [each] = batch
        self._leave(each.letter, "refused")
        log.warning(
            "the input topic refuses the dead letter %d:%d: %s", each.letter.number, each.letter.offset, refusal
        )

    def _commit(self, batch: list[_Ready], waiting: Sequence[_Ready] = ()) -> None:
        """One transaction with these records and with the offsets below which all is settled then; none in a dry run."""
        offsets = self._progress.offsets(each.letter for each in waiting)
        before = self._starts | self.committed
        # Also an offset that has not moved: it says that letters of the partition were sent (`_redriven_before`).
        begun = {each.letter.number for each in batch} - self.committed.keys()
        changed = {number: at for number, at in offsets.items() if at != before[number] or number in begun}
        if self._sender and (batch or changed):
            self._sender.send([each.record for each in batch], changed, partial(self._require_newest, batch))
            self.committed |= changed

    def _require_newest(self, batch: list[_Ready], firsts: Mapping[int, int]) -> None:
        """Inside the transaction: read the input up to our records. Raises Overtaken if one of them is settled by now.

        Raises TransactionTrouble if somebody's open transaction hides what is before them.
        """
        deadline = Deadline(self._config.transaction_timeout_s / 3)
        if not self._newer.read_to(firsts, deadline):
            raise TransactionTrouble("an open transaction hides records of the input, some of which may be newer")
        if any(map(self._settled_as, batch)):
            raise Overtaken("a newer record of a key came meanwhile")


_BEYOND = (
    "the redrive's group has committed an offset beyond the end of '{topic}' in partition {number}: the topic has lost its "
    "end, or was created again. Set the group's offsets back (kafka-consumer-groups --reset-offsets)"
)
