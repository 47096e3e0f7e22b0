"""Lanes: the input topics of one worker, each with a share, so that breaking news does not wait behind a backlog.

A lane is a topic. What waits for the device waits in queues, and each of them is divided by lane:

    in flight    Each lane may have an equal part of the articles and bytes that may be in flight, whatever the others do,
                 and each of its partitions an equal part of that. A partition that fills its part is held: the client drops
                 what it has fetched of it, so the next poll reaches the records of others. It is read on once half of its
                 part is free; until it is full again, others wait behind the hundred records that the client fetches ahead.
    tokenizer    Read articles wait by lane. The lane whose turn it is sends the next one, unless the scheduler has enough
                 of its windows, or its small records were unpacked to many long articles, which wait for each other.
    device       Each lane has a scheduler. The lane whose turn it is gets the next batch, if it has one ready.

`Turns` says whose turn it is: each piece of work puts the next turn of its lane off by its cost divided by the share, and
the lane whose turn comes first goes. So while lanes have work, they get the tokenizer and the device in proportion to their
shares; what an idle lane does not use goes to the others, and it saves up nothing: it begins with the present turn, before
the next piece of any lane that has just had one. A small share is the floor of a lane that should wait for all others.

So a backlog in one lane delays an article in another by what the device has already, and by the transaction that is running.
Transactions are made over all lanes, and order is kept per partition, as without lanes.

Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

LaneQueue = LengthBucketScheduler | ArrivalScheduler


class Turns:
    """Start-time fair queueing (Goyal, Vin, Cheng 1996) among lanes. `shares`: above 0, in any unit."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        assert shares, "there is a lane"
        assert all(share > 0 for share in shares.values()), "a lane without a share would never be served"
        self._shares = dict(shares)
        self._next = dict.fromkeys(shares, 0.0)
        """The earliest turn of each lane, in cost per share."""
        self._now = 0.0
        """The turn of the last piece of work."""

    def order(self, lanes: Iterable[str]) -> list[str]:
        """These lanes in the order of their turns; of equal ones the one with the larger share first."""
        return sorted(lanes, key=lambda lane: (self._turn_of(lane), -self._shares[lane]))

    def note(self, lane: str, cost: float) -> None:
        """A piece of work of this lane begins. `cost`: in any unit, the same for all."""
        self._now = self._turn_of(lane)
        self._next[lane] = self._now + cost / self._shares[lane]

    def _turn_of(self, lane: str) -> float:
        return max(self._next[lane], self._now)


class LaneScheduler:
    """Has the interface of the schedulers without lanes. `queues`: those, by lane; their batches cost tokens."""

    def __init__(self, queues: Mapping[str, LaneQueue], shares: Mapping[str, float]) -> None:
        self._queues, self._first = queues, next(iter(queues.values()))
        self._turns = Turns({lane: shares[lane] for lane in queues})

    @property
    def queued_windows(self) -> int:
        """How many windows wait, in all lanes."""
        return sum(queue.queued_windows for queue in self._queues.values())

    @property
    def queued_tokens(self) -> int:
        """The sum of their lengths."""
        return sum(queue.queued_tokens for queue in self._queues.values())

    @property
    def max_batch_tokens(self) -> int:
        """The current budget of a batch, which is the same in all lanes."""
        return self._first.max_batch_tokens

    def limit_budget(self, max_batch_tokens: int) -> None:
        """Limit later batches to so many tokens, at most those of the rules."""
        for queue in self._queues.values():
            queue.limit_budget(max_batch_tokens)

    def tokens_of(self, batch: Batch) -> int:
        """The tokens that a batch takes of the budget."""
        return self._first.tokens_of(batch)

    def queued_tokens_of(self, lane: str) -> int:
        """The sum of the lengths of the windows that wait in one lane."""
        return self._queues[lane].queued_tokens

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows of any lanes; their waiting time counts from `arrived_s`."""
        for lane, group in groupby(windows, key=lambda window: window.ticket.raw.partition.topic):
            self._queues[lane].add([*group])

    def next_due_s(self) -> float | None:
        """When the next batch of any lane is due; None if nothing waits."""
        due_s = [each_s for queue in self._queues.values() if (each_s := queue.next_due_s()) is not None]
        return min(due_s, default=None)

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """The batch to run now, of one lane; None if it is better to wait.

        `idle_threads`: how many threads of the device have nothing to do; `load`: how busy the worker is, 0 to 1.
        """
        for lane in self._turns.order([lane for lane, queue in self._queues.items() if queue.queued_windows]):
            queue = self._queues[lane]
            if batch := queue.next_batch(now_s, idle_threads=idle_threads, load=load):
                self._turns.note(lane, queue.tokens_of(batch))
                return batch
        return None

    def drop_forgotten(self) -> None:
        """Remove the windows of forgotten tickets."""
        for queue in self._queues.values():
            queue.drop_forgotten()
