"""Reads ranges of offsets, and passes over batches that have a valid checksum and that no client can decompress.

Any publisher can write such a batch (seen: one record of 100 MB in 3 KB of zstd; the client decompresses no zstd batch
beyond its `receive.message.max.bytes`). The client stays in front of it and reports only the offset at which it begins. Its
end is found by fetching from later offsets: as long as they are inside, the broker sends the same batch.

In record format 2 the client reports the first offset of such a batch. In the older formats it reports the last one, and
nothing tells where the batch begins. Brokers write format 2 alone since Kafka 3.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Self

from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient, OffsetSpec

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.errors import (
    UNREADABLE,
    ClientErrors,
    Complaint,
    broker_errors,
    mapping_errors,
    new_client,
    transient_error,
)
from enricher.worker.kafka.metadata import foreign, result_of
from enricher.worker.kafka.partition_reader import NO_END, POLL_S, PartitionReader, Ranges, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import DeadLetter, Partition, RawRecord, Ticket, Unreadable
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of offsets done, and their total."""

Unread = Callable[[int, range], None]
"""Called with a partition and its offsets that are in a batch which the client cannot unpack."""

_SILENCE_S = 15.0
_CLIENTS = 4
"""Clients that try in turn; together they wait longer than a cluster takes to elect leaders. A client that has lost the
leader of a partition, for example while its broker restarted, may never find it again (librdkafka 4898), so another one
goes on."""
_ZSTD = "(codec 0x4)"
"""The name of the codec in the client's message. Only record format 2 has zstd."""
_OUTSIDE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_LOOKUP_S = 10.0
"""The limit for all fetches of one batch: two for one record, forty for a million. Each takes about 20 ms, or 200 ms for
100 MB."""
_ONE_BATCH = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # The broker sends one batch, however large, so that later ones are not decompressed as well.
    "fetch.message.max.bytes": 1,
    "fetch.wait.max.ms": 10,
    "fetch.error.backoff.ms": 10,
}


class RangeReader:
    """Delivers the records of ranges: only committed records, or those of aborted transactions too."""

    def __init__(self, config: KafkaConfig, *, committed_only: bool, progress: Progress) -> None:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        self._complaint = Complaint()
        self._connect = partial(lone_reader, config, self._complaint, {"isolation.level": isolation})
        self._reader = self._connect()
        self._progress = progress
        self._unreadable = UnreadableBatches(config)
        self.left: Mapping[int, int] = {}
        """The end of each partition that was not reached when `read` ended."""

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def read(
        self,
        topic: str,
        ranges: Ranges,
        doing: str,
        unread: Unread | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> Iterator[Message]:
        """The records in `ranges`, each partition in order, until the deadline. Raises BrokerError.

        Without `unread`, a batch that cannot be unpacked is an error. What is not read at the deadline is in `left`.
        """
        rest, clients = dict(ranges), 0
        while clients < _CLIENTS:
            report = partial(self._report, doing, ranges)
            yield from self._read_until_silent(topic, rest, doing, unread, deadline, report)
            before, reader = rest, self._reader
            rest = {number: (reader.positions[number], end) for number, end in reader.left.items()}
            self.left = dict(reader.left)
            if not rest:
                return
            # A client that did not get there in time may be one that never will.
            reader.close()
            self._reader = self._connect()
            if deadline and deadline.over:
                return
            clients = clients + 1 if rest == before else 1
        raise BrokerError(f"{doing}: nothing came for {_CLIENTS * _SILENCE_S:.0f} s")

    def _read_until_silent(
        self,
        topic: str,
        ranges: Ranges,
        doing: str,
        unread: Unread | None,
        deadline: Deadline | None,
        report: Callable[[], None],
    ) -> Iterator[Message]:
        """Read with one client. Bounds the silence between two answers by counting polls, not by the clock.

        The caller may take long over one record.
        """
        reader, silent_s, came = self._reader, 0.0, False
        judge = partial(may_pass, taken={UNREADABLE} if unread else ())
        with broker_errors(reader.consumer, doing, self._complaint):
            for message in reader.read(topic, ranges, judge, deadline=deadline):
                if message is None:
                    report()
                    silent_s, came = 0.0 if came else silent_s + POLL_S, False
                    if silent_s > _SILENCE_S:
                        return
                    continue
                came, error, number = True, message.error(), message.partition() or 0
                if error is None:
                    yield message
                elif unread and error.code() == UNREADABLE:
                    place, begins = Partition(topic, number), message.offset() or 0
                    span = self._unreadable.span(place, reader.positions[number], error, begins)
                    unread(number, span)
                    reader.skip_to(number, span.stop)

    def _report(self, doing: str, ranges: Ranges) -> None:
        positions = self._reader.positions
        done = sum(
            min(positions.get(number, end), end) - start for number, (start, end) in ranges.items() if start < end
        )
        total = sum(end - start for start, end in ranges.values() if start < end)
        self._progress(doing, done, total)


class UnreadableBatches:
    """Finds the offsets of batches that cannot be decompressed. Remembers the last batch of each partition."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._known: dict[Partition, tuple[range, Unreadable]] = {}

    def span(self, partition: Partition, expected: int, error: KafkaError, begins: int) -> range:
        """The offsets from `expected` on of the batch that the client does not get past.

        `error` and `begins` are the error and the offset that the client reported. Blocks for some fetches. Raises
        BrokerError if the offsets cannot be determined, TransactionTrouble if the broker does not answer.
        """
        known, why = self._known.get(partition, (range(0), None))
        # Looked up again at its beginning: the topic may have been recreated or truncated.
        if expected not in known[1:] or why is None or why.batch_offset != begins:
            known = self._looked_up(partition, expected, error, begins)
            self._known[partition] = known, Unreadable(begins, error.str())
        return range(max(expected, known.start), known.stop)

    def letters(self, partition: Partition, offsets: range, topic_id: str | None) -> list[Ticket]:
        """Dead letters without content for these offsets of the batch whose `span` was determined last."""
        _, why = self._known[partition]
        message = (
            f"the client cannot unpack the batch at offset {why.batch_offset}, so only the position of this record is "
            f"known: {why.reason}"
        )
        tickets = [
            Ticket(RawRecord(partition, each, None, None, topic_id=topic_id, unreadable=why), arrived_s=0.0)
            for each in offsets
        ]
        for ticket in tickets:
            ticket.finish(DeadLetter("decode", "UnreadableBatch", message))
        return tickets

    def _looked_up(self, partition: Partition, expected: int, error: KafkaError, begins: int) -> range:
        # Between the two are markers and what was aborted or compacted away, unless `begins` is the last offset.
        if begins > expected and _ZSTD not in error.str() and first_leader_epoch(self._config, partition) is None:
            raise BrokerError(
                f"the client cannot decompress a batch of {partition.topic}[{partition.number}] at offset {begins} "
                f"({error.str()}); it is unknown whether the batch also holds the records from {expected} on. Set the "
                "group's offset behind it (kafka-consumer-groups --reset-offsets): its records are lost"
            )
        first = max(expected, begins)
        with _BatchEndFinder(self._config, partition, begins) as looker:
            found = range(first, looker.end(first))
        log.warning(
            "%s[%d] offsets %d to %d cannot be read: %s",
            *partition, found.start, found.stop - 1, error.str(),
        )  # fmt: skip
        return found


def first_leader_epoch(config: KafkaConfig, partition: Partition) -> int | None:
    """The leader epoch of the first offset, which the broker knows only if the whole log is in format 2.

    Older formats have no epochs, and a log does not go back to them. Blocks for the request timeout at most; raises
    TransactionTrouble.
    """
    client_errors = ClientErrors(config)
    admin = new_client(AdminClient, config.client("admin"), client_errors)
    doing = f"asking for the first offset of {partition.topic}[{partition.number}]"
    question = {foreign(partition): OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
    with mapping_errors(doing, client_errors, admin):
        [answer] = admin.list_offsets(question, request_timeout=config.request_timeout_s).values()
        epoch: int | None = result_of(answer, config.request_timeout_s).leader_epoch
    return None if epoch is None or epoch < 0 else epoch


class _BatchEndFinder:
    """Finds the end of a batch with its own client: the worker's would drop its prefetched records at each fetch."""

    def __init__(self, config: KafkaConfig, partition: Partition, begins: int) -> None:
        self._partition = partition
        self._begins = begins
        self._client_errors = ClientErrors(config)
        self._doing = f"looking for the end of a batch of {partition.topic}[{partition.number}]"
        self._deadline = Deadline(_LOOKUP_S)
        self._reader = PartitionReader(config.consumer() | _ONE_BATCH, self._client_errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def end(self, first: int) -> int:
        """The first offset behind the batch, by doubling the distance until it is outside, then by bisection.

        If the time runs out, the offset behind the last one known to be inside: the next lookup begins there.
        """
        inside, outside = first, None
        try:
            while outside is None or outside - inside > 1:
                offset = 2 * inside - first + 1 if outside is None else (inside + outside) // 2
                if self._is_inside(offset):
                    inside = offset
                else:
                    outside = offset
        except TransactionTrouble:
            if inside == first:
                raise
        return inside + 1

    def _is_inside(self, offset: int) -> bool:
        """Whether a fetch at `offset` returns the same batch."""
        ranges = {self._partition.number: (offset, NO_END)}
        with mapping_errors(self._doing, self._client_errors):
            for message in self._reader.read(
                self._partition.topic, ranges, self._answers, deadline=self._deadline, limit=1
            ):
                if message is not None:
                    error = message.error()
                    return error is not None and error.code() == UNREADABLE and message.offset() == self._begins
        raise TransactionTrouble(f"{self._doing}: no answer within {_LOOKUP_S:g} s")

    def _answers(self, error: KafkaError) -> bool:
        """Whether the error tells something about the batch. Raises BrokerError for one that waiting does not solve."""
        if error.code() == UNREADABLE or error.code() in _OUTSIDE:
            return True
        transient_error(error, self._doing, self._client_errors)
        return False
