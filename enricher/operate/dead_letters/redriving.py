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
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from confluent_kafka import Message

from enricher.errors import FatalError, TransactionTrouble
from enricher.operate.dead_letters.letters import Letter, Selection, headers_to_send, input_headers, letter_of
from enricher.operate.dead_letters.newer import NewerRecords
from enricher.operate.dead_letters.sender import Check, Outgoing, Overtaken, RefusedRecords, Sender
from enricher.operate.dead_letters.settled import MAX_METADATA_BYTES, Commit, SettledLetters
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
_AWAY_S = 60.0
"""Once it has begun, a redrive waits so long for a broker that is away, as readers and the sender do."""


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
        self._inspector = inspector = readers.inspector
        self._reader = readers.letters
        self._finder = readers.finder
        self._newer = NewerRecords(readers.inputs, config.input_topic)
        self._sender = sender
        self._name = uuid.uuid4().hex[:8]
        self._topic_id = inspector.topic_id(config.input_topic)
        self._partitions = len(inspector.partitions(config.input_topic))
        topic = config.dead_letter_topic
        letters_id, lows = inspector.topic_id(topic), inspector.beginnings(topic)
        self._ends = inspector.ends(topic, committed_only=True)
        self._settled = {n: SettledLetters(committed.get(n), letters_id) for n in self._ends}
        self._judged = {n: max(lows[n], settled.start) for n, settled in self._settled.items()}
        """The next letter of each partition to judge."""
        if beyond := [n for n, settled in self._settled.items() if settled.start > self._ends[n]]:
            raise FatalError(_BEYOND.format(number=beyond[0], topic=topic))
        self._candidates: set[tuple[int, int]] = set()
        self._input_lows: Mapping[int, int] = {}
        self._changed: set[int] = set()
        self._first_round = True
        self.found = 0
        self.counts: Counter[Ending] = Counter()

    def run(self) -> None:
        """Redrive. Raises BrokerError, Fenced, RecoveryExhausted; what was committed until then stays."""
        while not self._is_full and self._judge_letters():
            self._read_input(self._newer.starts)
            # Asked behind the reading, which retention may have overtaken.
            with self._inspector.within(_AWAY_S):
                self._input_lows = self._inspector.beginnings(self._config.input_topic)
            for batch in self._batches():
                self._send(batch)
                if self._is_full:
                    break
            self._newer.forget()
        if self._sender and self._changed:
            self._commit([], lambda _firsts: None)

    @property
    def _is_full(self) -> bool:
        return self._options.limit is not None and self.counts["sent"] >= self._options.limit

    # ---- 1: dead letters

    def _judge_letters(self) -> bool:
        """Collect the candidates of the next round; False if there are none."""
        self._candidates.clear()
        judged = dict(self._judged)
        for message in self._read_letters({n: (start, self._ends[n]) for n, start in judged.items()}, "reading"):
            letter = letter_of(message)
            source = letter.source if letter else None
            if (
                letter is None
                or source is None
                or source.topic != self._config.input_topic
                or not same_topic(source.topic_id, self._topic_id)
            ):
                self.counts["not_ours"] += self._first_round
                continue
            # Newer letters show newer inputs, too, which the input itself may have lost.
            self._newer.note(source.partition, message.key(), source.offset)
            settled = self._settled[letter.number]
            if self._first_round:
                settled.note(letter.offset)
                self.found += not settled.has(letter.offset)
            if len(self._candidates) < MOST_CANDIDATES and letter.offset >= judged[letter.number]:
                judged[letter.number] = letter.offset + 1
                if not settled.has(letter.offset):
                    self._judge(letter, message)
        self._first_round, self._judged = False, judged
        return bool(self._candidates)

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

    # ---- 2: newer records

    def _read_input(self, numbers: Iterable[int]) -> None:
        """Read partitions of the input, as far as newer records matter there, to their present end."""
        wanted = sorted(self._newer.starts.keys() & set(numbers))
        if wanted:
            with self._inspector.within(_AWAY_S):
                ends = self._inspector.ends(self._config.input_topic, wanted, committed_only=True)
            self._newer.read_to(ends)

    # ---- 3: records

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
        letter = letter_of(message)
        assert letter is not None, "it was one before"
        source = letter.source
        whole = self._input_of(letter, message)
        if whole is None:
            self.counts["not_available"] += 1
            return None
        if self._is_superseded(letter, whole.key):
            return None
        # Records behind the source are gone from the input, and one of them may have been newer.
        if (
            whole.key is not None
            and source.offset + 1 < self._input_lows[source.partition]
            and not self._options.unchecked
        ):
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
        return found

    def _is_superseded(self, letter: Letter, key: bytes | None) -> bool:
        """Whether a newer record is known; then the letter is settled and counted."""
        source = letter.source
        if not self._newer.has_newer(source.partition, key, source.offset):
            return False
        self.counts["superseded"] += 1
        self._settle([letter])
        return True

    def _send(self, batch: list[_Ready]) -> None:
        """Send what is not superseded by now. Each attempt that is overtaken leaves fewer."""
        self._options.wait(len(batch))
        while batch:
            self._read_input({each.record.number for each in batch})
            batch = [each for each in batch if not self._is_superseded(each.letter, each.record.key)]
            try:
                self._settle_by_sending(batch)
            except Overtaken:
                continue
            except RefusedRecords as refusal:
                self._send_one_by_one(batch, refusal)
            return

    def _settle_by_sending(self, batch: list[_Ready]) -> None:
        letters = [each.letter for each in batch]
        self._settle(letters)
        try:
            if batch and self._sender:
                self._commit([each.record for each in batch], partial(self._require_newest, batch))
        except BaseException:
            self._settle(letters, is_settled=False)
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

    # ---- what is settled

    def _settle(self, letters: Iterable[Letter], *, is_settled: bool = True) -> None:
        for letter in letters:
            self._settled[letter.number].settle(letter.offset, is_settled=is_settled)
            self._changed.add(letter.number)

    def _commit(self, records: list[Outgoing], check: Check) -> None:
        """One transaction with the records and with all that was settled since the last one."""
        assert self._sender is not None, "a dry run writes nothing"
        commits = {number: self._settled[number].commit(self._name) for number in sorted(self._changed)}
        for number, commit in commits.items():
            if len(commit.metadata) > MAX_METADATA_BYTES:
                raise FatalError(_TOO_SCATTERED.format(number=number, topic=self._config.dead_letter_topic))
        self._sender.send(records, commits, check)
        self._changed.clear()


_BEYOND = (
    "the redrive's group has committed an offset beyond the end of '{topic}' in partition {number}: the topic has lost its "
    "end, or was created again. Set the group's offsets back (kafka-consumer-groups --reset-offsets)"
)
_TOO_SCATTERED = (
    "the dead letters of '{topic}' that are left in partition {number} are too scattered among those that are done for one "
    "commit to list them, so no more are sent. Redrive with a selection that leaves fewer between: by time instead of by "
    "type, or the older ones first (--until)"
)
