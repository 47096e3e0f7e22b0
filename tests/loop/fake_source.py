"""A consumer on the fake log: what `KafkaSource` is on a real one, in all that the loop can see of it.

Where the behaviour of a real client is not clear from its documentation it was tried on librdkafka (`FakeSource.poll`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

from loop.fake_clock import FakeClock
from loop.fake_log import FakeLog, Unstable
from loop.faults import Fault, no_fault

from enricher.errors import TransactionTrouble
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import Mark, Partition, RawRecord, ReachedLimit, Start
from enricher.worker.rules.read_limits import Priority
from enricher.worker.stats import Connection


class FakeSource:
    """A member of the fake group, as `KafkaSource` is one of a real one."""

    waits_for_commit = False

    def __init__(
        self,
        log: FakeLog,
        clock: FakeClock,
        name: str,
        *,
        random: Random,
        fault: Fault = no_fault,
        until_caught_up: bool = False,
    ) -> None:
        self._log = log
        self._clock = clock
        self._name = name
        self._random = random
        self.fault = fault
        self._member = ""
        self._listener: PartitionListener | None = None
        self._next: dict[Partition, int | None] = {}
        """Where to read on in each partition of ours; None until its committed offset is known."""
        self._positions: dict[Partition, int] = {}
        self._starts: dict[Partition, Start] = {}
        self._raised: Exception | None = None
        self._until_caught_up = until_caught_up
        self._ends: dict[Partition, int] = {}
        self._priority = Priority([*dict.fromkeys(each.topic for each in log.input)])
        self.paused = False
        self.held: set[Partition] = set()
        self.holds = 0
        """How often a partition was held."""
        self.polls: list[tuple[int, float]] = []

    def open(self, listener: PartitionListener) -> None:
        """Join the group."""
        self._listener = listener
        self._ends = {partition: self._log.partitions[partition].end for partition in self._log.input}
        self._join()

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """Records, after whatever the group has to say.

        As `consume` of librdkafka 2.16 was seen to do: a rebalance may come after some records were collected; its
        callbacks run with positions that do not count these, and those of partitions that are gone are dropped.
        """
        self.fault("poll")
        self.polls.append((limit, timeout_s))
        if timeout_s > 0:
            self._clock.wait(timeout_s, self._something_to_tell)
        early = self._collect(self._random.randint(0, limit)) if self._news() else []
        gone = self._serve_group()
        records = [record for record in early if record.partition not in gone]
        records += self._collect(limit - len(records))
        self._note_positions(records)
        if self._raised:
            raised, self._raised = self._raised, None
            raise raised
        return records

    def pause(self) -> None:
        """Deliver nothing."""
        self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False

    def hold(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing of these, and of topics that wait. What was delivered does not come again when a hold ends."""
        behind = {each.topic for each in self._next if each not in partitions and self._is_behind(each)}
        topics = self._priority.to_hold(behind, self._clock())
        held = {each for each in self._next if each in partitions or each.topic in topics}
        self.holds += len(held - self.held)
        self.held = held

    def _is_behind(self, partition: Partition) -> bool:
        at = self._positions.get(partition, self._next[partition])
        return at is not None and at < self._log.partitions[partition].end

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The ends that were reached, markers skipped."""
        return {partition: at for partition in partitions if (at := self._positions.get(partition)) is not None}

    def start_of(self, partition: Partition) -> Start | None:
        """Where reading began, and what stood there."""
        return self._starts.get(partition)

    def rewind(self) -> None:
        """Back to the committed offsets. A fault in the middle leaves some partitions as they were."""
        self.held.clear()
        for partition in list(self._next):
            self.fault("rewind")
            try:
                self._next[partition] = self._begin(partition, self._log.stable_offset(partition))
            except Unstable as error:
                raise TransactionTrouble(str(error)) from error
            self._positions.pop(partition, None)

    def membership(self) -> tuple[str, int]:
        """Who we are for the group, now."""
        return self._member, self._log.group.generation

    def caught_up(self) -> bool:
        """True when the group has committed what was there at `open`."""
        done = all(self._log.committed.get(partition, 0) >= end for partition, end in self._ends.items())
        return self._until_caught_up and done

    def connection(self) -> Connection:
        """Always there, and knows the ends of its partitions."""
        logs = self._log.partitions
        return Connection(bool(self._member), ends={each: logs[each].stable_end(each) for each in self._next})

    def close(self) -> None:
        """Leave the group, which revokes everything."""
        if self._listener and self._member in self._log.group.members:
            self._listener.revoked(list(self._next))
            self._log.group.leave(self._member)

    def expel(self) -> None:
        """What the group does to a member that it has not heard of for the session timeout."""
        self._log.group.leave(self._member)

    # ---- inside

    def _join(self) -> None:
        self._member = self._log.group.join(self._name)

    def _news(self) -> bool:
        return self._log.group.news_for(self._member, self._next)

    def _something_to_tell(self) -> bool:
        return self._news() or bool(self._collect(1, peek=True))

    def _serve_group(self) -> set[Partition]:
        """Hear what the group has to say; returns the partitions that were taken away."""
        assert self._listener is not None
        group, gone = self._log.group, set[Partition]()
        if self._member not in group.members:
            gone.update(self._next)
            self._tell(self._listener.lost, list(gone))
            self._forget(gone)
            self._join()
        if revoked := [partition for partition in self._next if partition not in group.members[self._member]]:
            gone.update(revoked)
            self._tell(self._listener.revoked, revoked)
            self._forget(revoked)
            group.free(self._member, revoked)
        if assigned := group.take(self._member):
            self._next |= dict.fromkeys(assigned)
            self._tell(self._listener.assigned, assigned)
        if back := gone.intersection(assigned):
            self._raised = self._raised or TransactionTrouble(f"{back} left and came back within one poll")
        return gone

    def _forget(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._next.pop(partition)
            self.held.discard(partition)
            self._positions.pop(partition, None)
            self._starts.pop(partition, None)

    def _begin(self, partition: Partition, offset: int) -> int:
        self._starts[partition] = Start(
            offset, self._log.marks.get(partition, Mark()), self._log.reached_limits.get(partition, ReachedLimit())
        )
        return offset

    def _tell(self, listener: Callable[[Sequence[Partition]], None], partitions: Sequence[Partition]) -> None:
        """Nothing may leave a callback of the client: `poll` raises it afterwards."""
        try:
            listener(partitions)
        except Exception as error:  # noqa: BLE001  raised again by poll()
            self._raised = self._raised or error

    def _collect(self, limit: int, *, peek: bool = False) -> list[RawRecord]:
        """Up to `limit` records, partition after partition; with `peek` without reading on."""
        records: list[RawRecord] = []
        if self.paused:
            return records
        for partition, start in self._turned():
            if len(records) == limit:
                break
            log = self._log.partitions[partition]
            found, stop = log.read(start, log.stable_end(partition), limit - len(records))
            records += [RawRecord(partition, offset, *_key_value(payload)) for offset, payload in found]
            if not peek:
                if self._next[partition] is None:
                    self._begin(partition, start)
                self._next[partition] = stop
        return records

    def _turned(self) -> list[tuple[Partition, int]]:
        """Our partitions and where to read on, beginning with another one each time."""
        ready: list[tuple[Partition, int]] = []
        for partition, at in self._next.items():
            if partition in self.held:
                continue
            try:
                start = self._log.stable_offset(partition) if at is None else at
            except Unstable:
                continue
            ready.append((partition, start))
        turn = self._random.randrange(len(ready)) if ready else 0
        return ready[turn:] + ready[:turn]

    def _note_positions(self, records: Sequence[RawRecord]) -> None:
        """A position is known at the end of its partition, behind markers, and unknown while there is more to deliver."""
        delivered = {record.partition for record in records}
        for partition, at in self._next.items():
            if at is not None and at == self._log.partitions[partition].stable_end(partition):
                self._positions[partition] = at
            elif partition in delivered:
                self._positions.pop(partition, None)


def _key_value(payload: object) -> tuple[bytes | None, bytes | None]:
    assert isinstance(payload, tuple)
    key, value = payload
    return key, value
