"""A Kafka cluster in memory: topics of partitions, transactions, committed offsets, and one consumer group.

It models what exactly-once stands or falls with, and follows a real broker in it: markers and compacted records leave
gaps in the offsets; readers of committed records see nothing of an aborted transaction, nor anything behind the start of
an open one; offsets in a transaction count when it commits and block readers of the partition's offset until it ends; a
producer's epoch fences its predecessors; the group accepts offsets of its members of the present generation only.
Clients are in `fake_source.py` and `fake_sink.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from enricher.worker.records import Mark, Partition, ReachedLimit


class LogError(Exception):
    """What the fake broker answers instead of yes."""


class NoMember(LogError):
    """The group does not know this member, or not in this generation."""


class StaleGeneration(NoMember):
    """The group knows the member, in a newer generation."""


class Group:
    """Members and who may read which partition.

    Cooperative: a partition is given to its new reader only after the old one has let go of it, or was thrown out.
    """

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._partitions = sorted(partitions)
        self.generation = 0
        self._joined = 0
        self.members: dict[str, list[Partition]] = {}
        """What each member is to read, once it is free."""
        self.readers: dict[Partition, str] = {}
        """Who reads each partition now."""

    def join(self, name: str) -> str:
        """A new member, whose id nobody else ever had; a rebalance."""
        self._joined += 1
        member = f"{name}#{self._joined}"
        self.members[member] = []
        self._rebalance()
        return member

    def leave(self, member: str) -> None:
        """A member goes, or is thrown out for its silence: its partitions are free at once; a rebalance."""
        if self.members.pop(member, None) is not None:
            self.free(member, [partition for partition, reader in self.readers.items() if reader == member])
            self._rebalance()

    def free(self, member: str, partitions: Iterable[Partition]) -> None:
        """A member has let go of partitions; nothing happens where it was thrown out meanwhile."""
        for partition in partitions:
            if self.readers.get(partition) == member:
                del self.readers[partition]

    def take(self, member: str) -> list[Partition]:
        """The partitions that `member` may begin to read now: meant for it, and free."""
        taken = [partition for partition in self.members.get(member, ()) if partition not in self.readers]
        self.readers.update(dict.fromkeys(taken, member))
        return taken

    def news_for(self, member: str, owned: Iterable[Partition]) -> bool:
        """True where the member's next poll will tell it something."""
        wanted = self.members.get(member)
        if wanted is None or any(partition not in wanted for partition in owned):
            return True
        return any(partition not in self.readers for partition in wanted)

    def check(self, member: str, generation: int) -> None:
        """Fence offsets of strangers."""
        if member not in self.members:
            raise NoMember(member)
        if generation != self.generation:
            raise StaleGeneration(member)

    def _rebalance(self) -> None:
        """Spread the partitions evenly, moving as few as possible."""
        self.generation += 1
        if not self.members:
            return
        held = {
            member: [partition for partition in self._partitions if self.readers.get(partition) == member]
            for member in self.members
        }
        share, more = divmod(len(self._partitions), len(self.members))
        by_size = sorted(held, key=lambda member: -len(held[member]))
        quota = {member: share + (rank < more) for rank, member in enumerate(by_size)}
        self.members = {member: held[member][: quota[member]] for member in self.members}
        kept = {partition for partitions in self.members.values() for partition in partitions}
        free = [partition for partition in self._partitions if partition not in kept]
        for member, partitions in self.members.items():
            while len(partitions) < quota[member]:
                partitions.append(free.pop())


class ProducerFenced(LogError):
    """A newer producer has the same transactional id, or the transaction was given up for its age."""


class Unstable(LogError):
    """An open transaction may yet change this offset."""


@dataclass(slots=True, eq=False)
class Transaction:
    """A producer's writes and offsets that become visible together, or never."""

    owner: str
    life: object = None
    """The process that made it: names are used again, and an epoch lasts until the next recovery only."""
    state: Literal["open", "committed", "aborted"] = "open"
    first_offsets: dict[Partition, int] = field(default_factory=dict)
    group_offsets: dict[Partition, int] = field(default_factory=dict)
    marks: dict[Partition, Mark] = field(default_factory=dict)
    reached_limits: dict[Partition, ReachedLimit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands at one offset: a record, or a transaction's end marker (`payload` None)."""

    payload: object
    transaction: Transaction | None

    @property
    def visible(self) -> bool:
        """True for records that a reader of committed records gets."""
        return self.payload is not None and (self.transaction is None or self.transaction.state == "committed")


class PartitionLog:
    """Entries by offset; None where compaction removed one."""

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []
        self.open: set[Transaction] = set()

    @property
    def end(self) -> int:
        """The offset that the next entry gets."""
        return len(self.entries)

    def stable_end(self, partition: Partition) -> int:
        """Where readers of committed records stop: the start of the oldest open transaction."""
        return min((transaction.first_offsets[partition] for transaction in self.open), default=self.end)

    def read(self, start: int, stop: int, limit: int) -> tuple[list[tuple[int, object]], int]:
        """At most `limit` visible records of `[start, stop)`, and where to read on."""
        found: list[tuple[int, object]] = []
        for offset in range(start, stop):
            if len(found) == limit:
                return found, offset
            entry = self.entries[offset]
            if entry is not None and entry.visible:
                found.append((offset, entry.payload))
        return found, stop


class Producer:
    """A transactional producer of one epoch."""

    def __init__(self, log: FakeLog, transactional_id: str, epoch: int, life: object) -> None:
        self._log = log
        self._life = life
        self._id = transactional_id
        self._epoch = epoch

    def begin(self) -> None:
        """Open a transaction."""
        self._checked()
        assert self._id not in self._log.open_transactions, "one transaction at a time"
        self._log.open_transactions[self._id] = Transaction(self._id, self._life)

    def produce(self, partition: Partition, payload: object) -> None:
        """Append a record, which nobody sees until the commit."""
        transaction, log = self._open(), self._log.partitions[partition]
        self._log.changes += 1
        if partition not in transaction.first_offsets:
            transaction.first_offsets[partition] = log.end
            log.open.add(transaction)
        log.entries.append(Entry(payload, transaction))

    def send_offsets(
        self,
        offsets: Mapping[Partition, int],
        member: str,
        generation: int,
        marks: Mapping[Partition, Mark] = MappingProxyType({}),
        reached_limits: Mapping[Partition, ReachedLimit] = MappingProxyType({}),
    ) -> None:
        """Make the group's offsets, with their metadata, part of the transaction. Raises NoMember or StaleGeneration."""
        transaction = self._open()
        self._log.group.check(member, generation)
        transaction.group_offsets.update(offsets)
        transaction.marks.update({partition: marks.get(partition, Mark()) for partition in offsets})
        transaction.reached_limits.update(
            {partition: reached_limits.get(partition, ReachedLimit()) for partition in offsets}
        )

    def commit(self) -> None:
        """Make everything visible at once."""
        self._log.end_transaction(self._open(), "committed")

    def abort(self) -> None:
        """Let nobody see any of it, ever."""
        self._log.end_transaction(self._open(), "aborted")

    def _open(self) -> Transaction:
        self._checked()
        transaction = self._log.open_transactions.get(self._id)
        if transaction is None:
            raise ProducerFenced(self._id)
        return transaction

    def _checked(self) -> None:
        if self._log.epochs[self._id] != self._epoch:
            raise ProducerFenced(self._id)


class FakeLog:
    """The cluster. `inputs`: the topics that the group reads."""

    def __init__(self, topics: Mapping[str, int], *, inputs: Collection[str]) -> None:
        self.partitions = {
            Partition(topic, number): PartitionLog() for topic, numbers in topics.items() for number in range(numbers)
        }
        self.input = [partition for partition in self.partitions if partition.topic in inputs]
        self.group = Group(self.input)
        self.committed: dict[Partition, int] = {}
        self.marks: dict[Partition, Mark] = {}
        self.reached_limits: dict[Partition, ReachedLimit] = {}
        """What stands beside the committed offsets."""
        self.commits: list[Transaction] = []
        """The transactions that were committed, in this order."""
        self.epochs: dict[str, int] = {}
        self.open_transactions: dict[str, Transaction] = {}
        self.changes = 0
        """How often anything has changed that a reader sees, or that the group has committed."""

    # ---- writing

    def append(self, partition: Partition, payload: object) -> int:
        """A plain record; returns its offset."""
        self.changes += 1
        self.partitions[partition].entries.append(Entry(payload, None))
        return self.partitions[partition].end - 1

    def init_transactions(self, transactional_id: str, life: object = None) -> Producer:
        """End what an older producer of this id left open, fence it, and start a new epoch."""
        left_open = self.open_transactions.get(transactional_id)
        if left_open:
            self.end_transaction(left_open, "aborted")
        self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        return Producer(self, transactional_id, self.epochs[transactional_id], life)

    def end_transaction(self, transaction: Transaction, state: Literal["committed", "aborted"]) -> None:
        """Commit or abort: one marker in every partition that it wrote to, and its offsets count or do not."""
        assert transaction.state == "open"
        self.changes += 1
        transaction.state = state
        del self.open_transactions[transaction.owner]
        for partition in transaction.first_offsets:
            log = self.partitions[partition]
            log.open.discard(transaction)
            log.entries.append(Entry(None, transaction))
        if state == "committed":
            self.committed.update(transaction.group_offsets)
            self.marks.update(transaction.marks)
            self.reached_limits.update(transaction.reached_limits)
            self.commits.append(transaction)

    def time_out(self, transaction: Transaction) -> None:
        """Abort what was open for too long and fence its producer, as the transaction coordinator does."""
        if transaction.state == "open":
            self.epochs[transaction.owner] += 1
            self.end_transaction(transaction, "aborted")

    # ---- reading

    def stable_offset(self, partition: Partition) -> int:
        """The group's committed offset, 0 where there is none. Raises Unstable while a transaction may change it."""
        if any(partition in transaction.group_offsets for transaction in self.open_transactions.values()):
            raise Unstable(partition)
        return self.committed.get(partition, 0)

    def is_finished(self, partition: Partition) -> bool:
        """Whether the committed offset of an input partition is its end, transaction markers included."""
        return self.committed.get(partition, 0) == self.partitions[partition].end

    def read_committed(self, partition: Partition, stop: int | None = None) -> list[tuple[int, object]]:
        """Everything that a reader of committed records sees, with offsets; before `stop`, if there is one."""
        log = self.partitions[partition]
        end = log.stable_end(partition)
        return log.read(0, end if stop is None else min(stop, end), log.end + 1)[0]

    def stable_entries(self, partition: Partition) -> list[tuple[int, object]]:
        """What readers see or will surely see: committed already, if perhaps behind the start of an open transaction."""
        log = self.partitions[partition]
        return log.read(0, log.end, log.end + 1)[0]
