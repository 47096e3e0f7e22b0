"""Offsets, one small case each, and all orders at once; and the metadata that is committed beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from rules.building import P0, P1, P2, raw
from support.properties import examples

from enricher.worker.records import HEADER_BYTES, Mark, Partition, RawRecord, ReachedLimit, Release, Ticket, Tombstone
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.rules.offsets import OffsetTracker


def tracked(*offsets: int, tracker: OffsetTracker | None = None) -> tuple[OffsetTracker, list[Ticket]]:
    """A tracker with tickets of these offsets in flight."""
    tracker = tracker or OffsetTracker()
    if P0 not in tracker.partitions:
        tracker.assign([P0])
    tickets = [Ticket(raw(offset), 0.0) for offset in offsets]
    for ticket in tickets:
        tracker.track(ticket)
    return tracker, tickets


def test_what_is_finished_waits_for_what_is_before_it() -> None:
    """Offset 5 is slow: 9 and 12 are held back, and come with it, in order."""
    tracker, (first, second, third) = tracked(5, 9, 12)
    second.finish(Tombstone())
    third.finish(Tombstone())
    assert tracker.release({}).empty
    assert not tracker.publishable()
    first.finish(Tombstone())
    assert tracker.publishable()
    release = tracker.release({})
    assert [first, second, third] == list(release.tickets)
    assert {P0: 13} == release.committable


def test_nothing_is_released_twice() -> None:
    """A second release right after has nothing to say, not even the same offset."""
    tracker, (ticket,) = tracked(5)
    ticket.finish(Tombstone())
    assert not tracker.release({}).empty
    assert tracker.release({P0: 6}).empty


def test_positions_count_only_for_partitions_without_work_in_flight() -> None:
    """A position beyond an unfinished article would skip it."""
    tracker, (ticket,) = tracked(5)
    assert tracker.idle() == []
    assert tracker.release({P0: 20}).empty
    ticket.finish(Tombstone())
    assert {P0: 6} == tracker.release({P0: 20}).committable
    assert tracker.idle() == [P0]
    assert {P0: 20} == tracker.release({P0: 20}).committable


def test_a_partition_that_is_not_ours_is_not_committed() -> None:
    """A position of one that went away is ignored."""
    tracker, _ = tracked(5)
    assert tracker.unassign([P0]) == 1
    assert tracker.release({P0: 6}).empty
    assert (tracker.in_flight, tracker.in_flight_bytes, tracker.count_unfinished()) == (0, 0, 0)


@pytest.mark.parametrize("offset", [5, 4])
def test_offsets_that_do_not_grow_are_a_bug(offset: int) -> None:
    """The same record twice, or an older one, means that two readers are mixed up."""
    tracker, _ = tracked(5)
    with pytest.raises(AssertionError):
        tracked(offset, tracker=tracker)


def test_a_record_below_the_committable_offset_is_a_bug() -> None:
    """Its output would be left out of every release."""
    tracker, _ = tracked()
    tracker.release({P0: 10})
    with pytest.raises(AssertionError):
        tracked(9, tracker=tracker)


def test_after_forgetting_the_offsets_may_start_again() -> None:
    """A rewind delivers the same offsets once more, and they are released once more."""
    tracker, (old,) = tracked(5)
    assert tracker.forget() == 1
    assert old.forgotten
    _, (new,) = tracked(5, tracker=tracker)
    new.finish(Tombstone())
    assert [new] == list(tracker.release({}).tickets)


def test_bytes_in_flight_are_those_of_key_value_and_headers() -> None:
    """A record may be large in any of them, and all are held until it is published."""
    tracker, ticket = OffsetTracker(), Ticket(RawRecord(P0, 5, b"key", b"value", (("name", b"12"), ("n", None))), 0.0)
    tracker.assign([P0])
    tracker.track(ticket)
    assert len("keyvaluename12n") + 2 * HEADER_BYTES == tracker.in_flight_bytes
    ticket.finish(Tombstone())
    tracker.release({})
    assert tracker.in_flight_bytes == 0


PARTITIONS = (P0, P1, P2)


class AnyOrder(RuleBasedStateMachine):
    """A consumer over three partitions, articles that finish in any order, and a broker that notes what is published.

    The model knows nothing of tickets: for each partition, the offsets that exist, which of them carry a record, what was
    published and what was committed.

    Hypothesis leaves out some rules of most runs, so what has to come together for a bug is done by as few as possible.
    """

    make_tracker: Callable[[], OffsetTracker] = OffsetTracker

    def __init__(self) -> None:
        super().__init__()
        self.tracker = type(self).make_tracker()
        self.records: dict[Partition, list[int]] = {partition: [] for partition in PARTITIONS}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.positions: dict[Partition, int] = {}
        self.known: set[Partition] = set()
        """Partitions that delivered something since their assignment or rewind: then the client knows its position."""
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.published: dict[Partition, list[int]] = {partition: [] for partition in PARTITIONS}
        self.in_flight: list[Ticket] = []

    @initialize()
    def begin(self) -> None:
        """All partitions are ours at first."""
        for partition in PARTITIONS:
            self.assign(partition)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        gaps=st.lists(st.integers(0, 2), min_size=1, max_size=5),
        marker=st.booleans(),
        count=st.integers(0, 5),
    )
    def append(self, partition: Partition, gaps: list[int], count: int, *, marker: bool) -> None:
        """The log grows: records with gaps between them, perhaps a marker behind them. The consumer may read on."""
        for gap in gaps:
            self.records[partition].append(self.ends[partition] + gap)
            self.ends[partition] += gap + 1
        self.ends[partition] += marker
        if count:
            self.deliver(count, partition)

    @rule(partition=st.sampled_from(PARTITIONS), goes=st.booleans(), comes=st.just(value=True) | st.booleans())
    def rebalance(self, partition: Partition, *, goes: bool, comes: bool) -> None:
        """A partition goes, or comes, or both, or was lost and comes back unnoticed."""
        if goes:
            lost = [ticket for ticket in self.in_flight if ticket.raw.partition == partition]
            assert len(lost) == self.tracker.unassign([partition])
            self.start_over(partition)
            self.positions.pop(partition, None)
        if comes:
            self.assign(partition)

    def assign(self, partition: Partition) -> None:
        """A partition is ours now."""
        self.tracker.assign([partition])
        self.start_over(partition)

    @rule(count=st.integers(1, 5), partition=st.sampled_from(PARTITIONS))
    def poll(self, count: int, partition: Partition) -> None:
        """The consumer reads on."""
        self.deliver(count, partition)

    def deliver(self, count: int, partition: Partition) -> None:
        """Records are delivered in order; the position skips markers where no record is left."""
        if partition not in self.positions:
            return
        position = self.positions[partition]
        for offset in [offset for offset in self.records[partition] if offset >= position][:count]:
            ticket = Ticket(raw(offset, partition), 0.0)
            self.tracker.track(ticket)
            self.in_flight.append(ticket)
            self.positions[partition] = offset + 1
            self.known.add(partition)
        if not any(offset >= self.positions[partition] for offset in self.records[partition]):
            self.known.update([partition] * (self.ends[partition] > self.positions[partition]))
            self.positions[partition] = self.ends[partition]

    @rule(picks=st.lists(st.integers(0, 11), max_size=8), works=st.integers(0, 4).map(bool))
    def publish(self, picks: list[int], *, works: bool) -> None:
        """Any articles get their outcomes, then a transaction has a release. If it fails all is forgotten and read again."""
        for pick in picks:
            if pick < len(self.in_flight) and self.in_flight[pick].outcome is None:
                self.in_flight[pick].finish(Tombstone())
        asked = self.tracker.idle()
        release = self.tracker.release({p: self.positions[p] for p in asked if p in self.known})
        if works:
            self.commit(release)
        else:
            self.go_back()

    def commit(self, release: Release) -> None:
        """Note what a transaction makes visible."""
        for ticket in release.tickets:
            self.published[ticket.raw.partition].append(ticket.raw.offset)
        self.in_flight = [ticket for ticket in self.in_flight if ticket not in release.tickets]
        for partition, offset in release.committable.items():
            assert offset > self.committed[partition], "it only grows"
            self.committed[partition] = offset

    @rule()
    def forget(self) -> None:
        """Trouble: all is forgotten, the consumer goes back to the committed offsets."""
        self.go_back()

    def go_back(self) -> None:
        """Forget and rewind."""
        self.tracker.forget()
        for partition in list(self.positions):
            self.start_over(partition)
        assert self.in_flight == []

    @invariant()
    def a_restart_now_would_lose_and_repeat_nothing(self) -> None:
        """What is published is exactly what stands below the committed offsets, once, in the order of the offsets."""
        for partition in PARTITIONS:
            below = [offset for offset in self.records[partition] if offset < self.committed[partition]]
            assert below == self.published[partition], "lost or repeated"

    @invariant()
    def counts_are_right(self) -> None:
        """In flight is what was delivered and neither published nor forgotten."""
        assert len(self.in_flight) == self.tracker.in_flight
        assert sum(ticket.raw.size_bytes for ticket in self.in_flight) == self.tracker.in_flight_bytes
        assert sum(ticket.outcome is None for ticket in self.in_flight) == self.tracker.count_unfinished()

    def teardown(self) -> None:
        """In the end everything finishes, and everything is committed up to the end."""
        for partition in self.positions:
            self.deliver(1_000_000, partition)
        for ticket in self.in_flight:
            if ticket.outcome is None:
                ticket.finish(Tombstone())
        for _ in range(2):
            known = {partition: at for partition, at in self.positions.items() if partition in self.known}
            self.commit(self.tracker.release({p: at for p, at in known.items() if p in self.tracker.idle()}))
        self.a_restart_now_would_lose_and_repeat_nothing()
        assert (self.tracker.in_flight, self.tracker.in_flight_bytes) == (0, 0)
        assert all(self.committed[partition] == self.ends[partition] for partition in self.known)

    def start_over(self, partition: Partition) -> None:
        """The consumer stands at the committed offset, and what it had is forgotten."""
        gone = [ticket for ticket in self.in_flight if ticket.raw.partition == partition]
        assert not any(ticket.live for ticket in gone)
        self.in_flight = [ticket for ticket in self.in_flight if ticket.raw.partition != partition]
        self.positions[partition] = self.committed[partition]
        self.known.discard(partition)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = examples(100, stateful_step_count=40)


class Naive(OffsetTracker):
    """The bug that hold-back is there for: publishes whatever is finished, commits what is contiguous."""

    def release(self, positions: Mapping[Partition, int]) -> Release:
        """Everything finished, at the head or not."""
        early = []
        for queue in self._queues.values():
            for ticket in [ticket for ticket in list(queue.tickets)[1:] if ticket.outcome is not None]:
                queue.tickets.remove(ticket)
                self._remove_from_flight(ticket)
                early.append(ticket)
        release = super().release(positions)
        return Release([*release.tickets, *early], release.committable)


class PositionCommitter(OffsetTracker):
    """The other one: commits the consumer's position, finished or not."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[Partition, int] = {}

    def idle(self) -> list[Partition]:
        """All partitions."""
        return list(self.partitions)

    def release(self, positions: Mapping[Partition, int]) -> Release:
        """What is finished, and the positions where they are new."""
        new = {partition: at for partition, at in positions.items() if self.sent.get(partition) != at}
        self.sent |= new
        return Release(super().release({}).tickets, new)


@pytest.mark.parametrize("bug", [Naive, PositionCommitter])
def test_the_checker_catches_trackers_that_are_wrong(bug: Callable[[], OffsetTracker]) -> None:
    """The negative control: the same machine fails for a tracker that publishes early, and for one that commits early."""
    machine = type("Wrong", (AnyOrder,), {"make_tracker": bug})
    quick = settings(
        max_examples=300,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    with pytest.raises(AssertionError, match="lost or repeated"):
        run_state_machine_as_test(machine, settings=quick)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (CommitMetadata(), "enricher/1"),
        (CommitMetadata("kz7-Q2mNTXS0b_1d0wY3sA"), "enricher/1 topic-id=kz7-Q2mNTXS0b_1d0wY3sA"),
        (CommitMetadata("id", Mark(attempts=3, alone=1)), "enricher/1 topic-id=id attempts=3 alone=1"),
        (CommitMetadata("id", reached_limit=ReachedLimit(in_window=9)), "enricher/1 topic-id=id limit-in-window=9"),
        (
            CommitMetadata(reached_limit=ReachedLimit(3, reason="decode:InvalidArticle")),
            "enricher/1 limit-in-a-row=3 limit-reason=decode:InvalidArticle",
        ),
    ],
)
def test_what_is_written_is_read_back(metadata: CommitMetadata, text: str) -> None:
    """Fields that say nothing are left out, and come back as saying nothing."""
    assert text == metadata.encode()
    assert metadata == CommitMetadata.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "NULL", "leader=3", "enricher/2 attempts=9", "attempts=9"),
        "enricher/1 attempts=-1",
        "enricher/1 attempts=x alone=",
        "enricher/1 attempts=²",
        f"enricher/1 attempts={'9' * 5_000}",
        "enricher/1 began-with=4 replay=beginning..end until=9",  # of earlier versions
        "enricher/1 dead-letters=9 dead-letters-in-a-row=3",
    ],
)
def test_what_somebody_else_wrote_says_nothing(text: str | None) -> None:
    """Tools that reset offsets write an empty string, others what they like. A damaged count never raises: it is zero."""
    assert CommitMetadata() == CommitMetadata.decode(text)


def test_an_offset_belongs_to_a_topic_unless_it_names_another_one() -> None:
    """What others committed names none."""
    assert [True, False, True] == [CommitMetadata(beside).is_of("a") for beside in ("a", "b", None)]


def test_a_reason_of_any_length_and_form_fits() -> None:
    """A type of error may have any name: it cannot add fields, or use up the bytes of the metadata."""
    text = CommitMetadata(reached_limit=ReachedLimit(3, reason="a b=c attempts=9 " + "x" * 5_000)).encode()
    assert (
        ReachedLimit(3, reason=("a-b=c-attempts=9-" + "x" * 5_000)[:100]) == CommitMetadata.decode(text).reached_limit
    )
    assert Mark() == CommitMetadata.decode(text).mark
