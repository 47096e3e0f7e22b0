"""What `worker/loop/ports.py` promises of a source and its sink, kept by the fake log and by a real broker alike.

Every proof on the fake log is worth as much as these tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from kafka.clients import finished, release_of
from loop.ends import PARTITIONS, Ends, FakeEnds, Member, RealEnds, large

from enricher.errors import Fenced, TransactionTrouble
from enricher.worker.records import Mark, Partition, Release, Start


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def ends(request: pytest.FixtureRequest) -> Ends:
    """The fake log, and a real broker."""
    if request.param == "fake":
        return FakeEnds()
    return RealEnds(request.getfixturevalue("broker").bootstrap_servers)


def test_records_of_a_partition_come_once_and_in_order(ends: Ends) -> None:
    """Whatever comes between them from other partitions."""
    ends.put(20, 0)
    ends.put(20, 1)
    records = Member(ends).read(40)
    for number in range(PARTITIONS):
        assert list(range(20)) == [each.offset for each in records if each.partition.number == number]


def test_outputs_and_offsets_become_visible_together(ends: Ends) -> None:
    """On the input's partition, in the input's order."""
    ends.put(3, 0)
    ends.put(2, 1)
    member = Member(ends)
    member.read(5)
    assert ({}, {}) == (ends.outputs(), ends.committed())
    member.publish()
    assert {0: [0, 1, 2], 1: [0, 1]} == ends.outputs()
    assert {0: 3, 1: 2} == ends.committed()


def test_a_new_member_resumes_at_the_committed_offsets(ends: Ends) -> None:
    """With the mark that stands beside them."""
    ends.put(4)
    first = Member(ends)
    first.records = first.read(4)[:3]
    release, mark = release_of(first.records), Mark(attempts=2, alone=1)
    first.sink.publish(Release(release.tickets, release.committable, {ends.partition(0): mark}))
    first.source.close()
    second = Member(ends)
    assert [3] == [record.offset for record in second.read(1)]
    assert Start(3, mark) == second.source.start_of(ends.partition(0))


def test_nothing_of_a_failed_transaction_is_visible(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails after its records were written. Without a recovery the sink publishes nothing more."""
    ends.put(3)
    member = Member(ends)
    member.read(3)

    def no_member() -> object:
        raise TransactionTrouble("no member")

    with monkeypatch.context() as patched:
        patched.setattr(member.source, "membership", no_member)
        with pytest.raises(TransactionTrouble):
            member.publish()
    with pytest.raises(TransactionTrouble):
        member.publish()
    assert ({}, {}) == (ends.outputs(), ends.committed())
    member.sink.recover()
    member.publish()
    assert {0: [0, 1, 2]} == ends.outputs()


def test_rewind_delivers_again_from_the_committed_offsets(ends: Ends) -> None:
    """What was not published comes once more, in every partition, and nothing else."""
    ends.put(5, 0)
    ends.put(4, 1)
    member = Member(ends)
    records = member.read(9)
    member.records = [each for each in records if each.offset < 2]
    rest = {(each.partition, each.offset) for each in records if each.offset >= 2}
    member.publish()
    member.source.rewind()
    assert rest == {(each.partition, each.offset) for each in member.read(5)}
    assert Start(2) == member.source.start_of(ends.partition(0))


@pytest.mark.parametrize("commit", [True, False])
def test_positions_pass_transaction_markers(ends: Ends, commit: bool) -> None:  # noqa: FBT001  a parameter of the test
    """A marker, and records that were aborted, are offsets without a record; the end behind them can be committed."""
    ends.put(1)
    ends.put_transaction(2, commit=commit)
    member, place = Member(ends), ends.partition(0)
    member.read(3 if commit else 1)
    member.until(lambda: member.source.positions([place]) == {place: 4})
    assert [0, 1, 2][: 3 if commit else 1] == member.offsets()
    member.publish()
    member.sink.publish(Release([], {place: 4}))
    assert 4 == ends.committed()[0]


def test_a_position_is_unknown_while_there_is_more_to_deliver(ends: Ends) -> None:
    """Nobody could tell markers from records that have not come yet."""
    member, place = Member(ends), ends.partition(0)
    ends.put(5)
    while not member.records:
        member.poll(1)
    assert 1 == len(member.records)
    assert {} == member.source.positions([place])
    member.read(5)
    member.until(lambda: member.source.positions([place]) == {place: 5})


def test_what_a_revoked_partition_publishes_is_not_read_by_its_next_owner(ends: Ends) -> None:
    """Inside the callback there is still time for one transaction; partitions that stay are not revoked."""
    ends.put(3, 0)
    ends.put(3, 1)
    first = Member(ends)
    read = list(first.read(6))

    def publish(partitions: Sequence[Partition]) -> None:
        first.records = [record for record in read if record.partition in partitions]
        first.publish()

    first.diary.on_revoked = publish
    second = Member(ends, partitions=0)
    # Its sink has fenced the first one's, as a second process of that name does.
    first.sink.recover()
    first.until(lambda: len(second.diary.owned) == 1 and len(first.diary.owned) == 1, second)
    (moved,) = second.diary.owned
    second.until(lambda: second.source.positions([moved]) == {moved: 3}, first)
    assert ("revoked", (moved,)) in first.diary.events
    assert "lost" not in dict(first.diary.events)
    assert [] == second.records
    assert {moved.number: [0, 1, 2]} == ends.outputs()
    assert {moved.number: 3} == ends.committed()


def test_an_expelled_member_loses_its_partitions_and_publishes_nothing(ends: Ends) -> None:
    """It is told that they are lost, not revoked: somebody else may own them."""
    ends.put(3)
    member = Member(ends, expires_soon=True)
    member.read(3)
    ends.expel(member.source)
    with pytest.raises(TransactionTrouble):
        member.publish()
    member.records = []
    with suppress(TransactionTrouble):  # where partitions are lost and assigned again within one poll
        member.until(lambda: "lost" in dict(member.diary.events))
    assert "lost" in dict(member.diary.events)
    assert "revoked" not in dict(member.diary.events)
    assert ({}, {}) == (ends.outputs(), ends.committed())
    member.sink.recover()
    member.records = []
    member.source.rewind()
    member.read(3)
    assert [0, 1, 2] == member.offsets()


def test_a_newer_producer_fences_the_older_one(ends: Ends) -> None:
    """The older one is told so, and publishes nothing."""
    ends.put(3)
    member = Member(ends)
    member.read(3)
    newer = ends.sink(member.source)
    with pytest.raises(Fenced):
        member.publish()
    assert ({}, {}) == (ends.outputs(), ends.committed())
    newer.publish(release_of(member.records))
    assert {0: [0, 1, 2]} == ends.outputs()


def test_a_record_that_is_too_large_becomes_a_dead_letter_and_is_returned(ends: Ends) -> None:
    """The outcome of its ticket stays; what was written is returned."""
    ends.put(2)
    member = Member(ends)
    first, second = member.read(2)
    tickets = [finished(first), large(second)]
    outcomes = [ticket.outcome for ticket in tickets]
    substitutes = member.sink.publish(Release(tickets, {ends.partition(0): 2}))
    assert {tickets[1]: "OutputTooLarge"} == {ticket: each.error_type for ticket, each in substitutes.items()}
    assert outcomes == [ticket.outcome for ticket in tickets]
    assert ({0: [0]}, {0: [1]}, {0: 2}) == (ends.outputs(), ends.outputs(dead=True), ends.committed())


def test_a_paused_source_delivers_nothing_until_it_is_resumed(ends: Ends) -> None:
    """Nothing is skipped meanwhile."""
    member = Member(ends)
    member.source.pause()
    ends.put(3)
    for _ in range(20):
        member.poll()
    assert [] == member.records
    member.source.resume()
    member.read(3)
    assert [0, 1, 2] == member.offsets()


def test_a_held_partition_delivers_nothing_and_the_others_go_on(ends: Ends) -> None:
    """When its hold ends it is read on from where it was, although the client had prefetched more of it."""
    ends.put(200, 0)
    member = Member(ends)
    while not member.records:
        member.poll(5)
    held = ends.partition(0)
    member.source.hold([held])
    read = member.offsets()
    ends.put(50, 1)
    member.until(lambda: len(member.records) == len(read) + 50)
    for _ in range(20):
        member.poll()
        member.source.hold([held])
    assert [*read, *range(50)] == member.offsets()
    member.source.hold([])
    member.read(250)
    assert [*range(200)] == [each.offset for each in member.records if each.partition == held]


def test_a_rewind_ends_a_hold(ends: Ends) -> None:
    """What was not published comes again, in order."""
    ends.put(100, 0)
    member = Member(ends)
    while not member.records:
        member.poll(5)
    member.source.hold([ends.partition(0)])
    member.records = []
    member.source.rewind()
    member.read(100)
    assert [*range(100)] == member.offsets()


def test_a_partition_may_be_held_during_a_pause_and_after_it(ends: Ends) -> None:
    """The end of one does not end the other."""
    member, held = Member(ends), ends.partition(0)
    ends.put(3, 0)
    member.read(3)
    member.source.hold([held])
    member.source.pause()
    ends.put(3, 0)
    ends.put(3, 1)
    member.source.resume()
    member.read(6)
    assert {1: 3} == {1: sum(each.partition.number == 1 for each in member.records)}
    member.source.pause()
    member.source.hold([])
    for _ in range(20):
        member.poll()
    assert 6 == len(member.records)
    member.source.resume()
    member.read(9)
    assert [*range(6)] == [each.offset for each in member.records if each.partition == held]


def test_a_held_partition_stays_held_when_another_one_leaves(ends: Ends) -> None:
    """A rebalance has the client pause and resume what stays."""
    ends.put(3, 0)
    ends.put(3, 1)
    first = Member(ends)
    first.read(6)
    first.source.hold([ends.partition(0), ends.partition(1)])
    second = Member(ends, partitions=0)
    first.until(lambda: len(first.diary.owned) == 1 and len(second.diary.owned) == 1, second)
    (kept,) = first.diary.owned
    ends.put(3, kept.number)
    for _ in range(20):
        first.poll()
    assert 6 == len(first.records)
    first.source.hold([])
    first.read(9)
    assert [*range(6)] == [each.offset for each in first.records if each.partition == kept]
