"""How long an assigned partition has delivered nothing although it has records.

A client can lose a partition: it stays assigned, the group is stable, but no record arrives (librdkafka 5586, 5591, 2190)
and no error is reported. The only proof comes from the broker: the partition's end is beyond what was delivered, and stays
beyond it although the client has had every opportunity to deliver. Then the process ends: a restart has a new client.

After the first half of the bound a silent partition's end is requested; one that is behind its end has the second half to
deliver a record. After that it is overdue, which proves nothing yet. Beside a backlog a healthy partition may be silent for
long: its records stand in the client's queue behind those of others, or the client does not fetch it (seen: with large
batches it fetched one of four partitions for half a minute, and the others not at all). So an overdue partition is given a
turn, in which all others are held. It is stalled only if the client has had nothing at all to deliver `TURN_S` after that; a
healthy one delivers in its turn, which ends with that, so that a long turn costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

TURN_S = 10.0
"""How long an overdue partition may deliver nothing while the others are held. A client waits at a broker for 0.5 s at most
before it fetches again, and a broker that throttles clients makes them wait for one or two seconds more."""


@dataclass(slots=True)
class Silence:
    """The silence of one partition since `since_s`: a record, its end reached, or the start of reading."""

    since_s: float
    behind_s: float | None = None
    """When the broker first reported that there is more to read, or that the log is another one."""
    turn_s: float | None = None
    """When the partition's turn began, after that."""

    def hear(self, now_s: float) -> None:
        """A record arrived, or the partition's end was reached."""
        self.since_s = now_s
        self.behind_s = self.turn_s = None

    def asks(self, now_s: float, bound_s: float) -> bool:
        """Whether it has lasted long enough to request the partition's end."""
        return now_s - self.since_s >= bound_s / 2

    def learn(self, end: int | None, position: int | None, now_s: float) -> None:
        """Note the broker's answer: the partition's end; None if it has no leader now, so that no record can come.

        An end before our position belongs to another log: the topic was recreated or truncated, and the client must notice.
        """
        if end is None:
            self.behind_s = self.turn_s = None
        elif end == position:
            self.hear(now_s)
        elif self.behind_s is None:
            self.behind_s = now_s

    def is_overdue(self, now_s: float, bound_s: float) -> bool:
        """Whether the partition is behind its end and delivered nothing within the bound."""
        return self.behind_s is not None and now_s - self.behind_s >= bound_s / 2

    def give_turn(self, now_s: float, *, renewed: bool) -> None:
        """The client fetches only overdue partitions. `renewed`: only from now on, else since before."""
        if renewed or self.turn_s is None:
            self.turn_s = now_s

    def is_stalled(self, drained_s: float) -> bool:
        """Whether it lasted through the turn. `drained_s`: when the client last had no more records of any partition."""
        return self.turn_s is not None and drained_s >= self.turn_s + TURN_S
