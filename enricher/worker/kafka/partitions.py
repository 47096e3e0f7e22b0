"""The assigned partitions together: which of them are in a state, and where each is.

What may be called from any thread copies the partitions first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from enricher.worker.kafka.partition import AssignedPartition, Silence, State
from enricher.worker.records import Partition, Start


class Partitions:
    """The assigned partitions by name.

    `log_end`: asks for the end of a partition's log. Raises TransactionTrouble if no broker answers. `bound_s`: how long a
    partition may deliver nothing; `start_bound_s`: how long its start may stay unknown.
    """

    def __init__(self, log_end: Callable[[Partition], int], *, bound_s: float, start_bound_s: float) -> None:
        self._log_end = log_end
        self._bound_s = bound_s
        self._start_bound_s = start_bound_s
        self._partitions: dict[Partition, AssignedPartition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions)

    def __getitem__(self, name: Partition) -> AssignedPartition:
        return self._partitions[name]

    def get(self, name: Partition) -> AssignedPartition | None:
        """The partition; None if it is not assigned."""
        return self._partitions.get(name)

    def add(self, names: Iterable[Partition], now_s: float) -> None:
        """Add assigned partitions, whose starts are unknown."""
        self._partitions.update((name, AssignedPartition(name, self._log_end, now_s)) for name in names)

    def rewind(self, names: Iterable[Partition], now_s: float) -> None:
        """Let these partitions start again."""
        for name in names:
            if at := self._partitions.get(name):
                at.rewind(now_s)
            else:
                self.add([name], now_s)

    def remove(self, names: Iterable[Partition]) -> None:
        """Remove partitions that are no longer assigned."""
        for name in names:
            self._partitions.pop(name, None)

    # ---- states

    def of(self, *states: State) -> list[Partition]:
        """The partitions in any of these states."""
        return [name for name, at in self._partitions.items() if at.state in states]

    @property
    def waiting(self) -> list[Partition]:
        """The partitions that are not read yet."""
        return [name for name, at in self._partitions.items() if at.start is None]

    @property
    def uncommitted(self) -> bool:
        """True if a partition begins only once its start is committed."""
        return any(at.state is State.UNCOMMITTED for at in self._partitions.values())

    @property
    def unheard(self) -> bool:
        """True if a partition whose start is known has delivered neither a record nor its end since."""
        return any(at.start is not None and at.next is None for at in self._partitions.values())

    # ---- positions

    def to_commit(self, names: Collection[Partition]) -> Mapping[Partition, int]:
        """The ends of the partitions that were read to their end, and uncommitted starts; the others are left out."""
        found = ((name, self._partitions.get(name)) for name in names)
        offsets = {name: at.to_commit for name, at in found if at}
        return {name: offset for name, offset in offsets.items() if offset is not None}

    def behind(self, ends: Mapping[Partition, int]) -> list[Partition]:
        """The partitions that have more to deliver, by their known `ends`."""
        found = ((name, at.position) for name, at in self._partitions.items())
        return [name for name, position in found if position is not None and ends.get(name, 0) > position]

    def start_of(self, name: Partition) -> Start | None:
        """The start of the partition; None while it is unknown."""
        at = self._partitions.get(name)
        return at.start if at else None

    def starts(self) -> Mapping[Partition, int]:
        """The offset at which each partition began. May be called from any thread."""
        return {name: at.start.offset for name, at in list(self._partitions.items()) if at.start is not None}

    def held_ends(self) -> Mapping[Partition, int]:
        """The ends of partitions that are held, where known: the client knows only those of partitions that it fetches.

        May be called from any thread.
        """
        return {name: at.held_end for name, at in list(self._partitions.items()) if at.held_end is not None}

    # ---- silence

    def expect(self, names: Iterable[Partition], now_s: float) -> None:
        """Expect records of the partitions that are read. A silence that began before a pause goes on."""
        for name in names:
            at = self._partitions[name]
            if at.state is State.READING and at.silence is None:
                at.silence = Silence(now_s)

    def to_ask(self, now_s: float) -> list[Partition]:
        """The partitions that have been silent long enough to request their end, and the held ones."""
        return [
            name
            for name, at in self._partitions.items()
            if at.state is State.HELD or (at.silence and at.silence.asks(now_s, self._bound_s))
        ]

    def learn(self, ends: Mapping[Partition, int], asked: Iterable[Partition], now_s: float) -> None:
        """Note the broker's answer about the `asked` partitions; one without an end has no leader now."""
        for name in asked:
            at, end = self._partitions[name], ends.get(name)
            if at.state is State.HELD:
                at.held_end = at.held_end if end is None else end
            elif at.silence:
                at.silence.learn(end, at.position, now_s)

    def overdue(self, now_s: float) -> list[Partition]:
        """The partitions that are behind their end and delivered nothing within the bound."""
        return [
            name for name, at in self._partitions.items() if at.silence and at.silence.is_overdue(now_s, self._bound_s)
        ]

    def late(self, now_s: float) -> list[Partition]:
        """The partitions whose start is unknown, if no look-up made progress within the bound."""
        return [
            name
            for name, at in self._partitions.items()
            if at.start is None and now_s - at.progress_s >= self._start_bound_s
        ]

    def unknown_s(self, now_s: float) -> float:
        """The longest time for which a start has been unknown. May be called from any thread."""
        times_s = [at.unknown_since_s for at in list(self._partitions.values())]
        return max((now_s - since_s for since_s in times_s if since_s is not None), default=0.0)

    def silent_s(self, now_s: float) -> float:
        """The longest time for which a partition behind its end has delivered nothing. May be called from any thread.

        A partition whose start is unknown counts, too: it may be behind its end.
        """
        silences = [at.silence for at in list(self._partitions.values())]
        behind_s = [now_s - each.since_s for each in silences if each and each.behind_s is not None]
        return max(self.unknown_s(now_s), *behind_s, 0.0)
