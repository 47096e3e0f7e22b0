"""A consumer group: who is a member, who reads what, and whose offsets count."""

from __future__ import annotations

from collections.abc import Iterable

from enricher.worker.records import Partition


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
