"""The fake log keeps the promises of a broker; otherwise what is proven on it would be worth nothing."""

from __future__ import annotations

import pytest
from loop import checker
from loop.fake_log import FakeLog, ProducerFenced, Unstable
from loop.fake_sink import OUTPUT, Output
from loop.world import INPUT, SHORT, World

from enricher.worker.records import Partition

INPUT_0, INPUT_1, OUTPUT_0 = Partition(INPUT, 0), Partition(INPUT, 1), Partition(OUTPUT, 0)


@pytest.fixture
def log() -> FakeLog:
    """Two input partitions and two output partitions."""
    return World().log


def test_records_of_a_transaction_appear_at_its_commit(log: FakeLog) -> None:
    """Readers stop at the start of an open transaction, even for plain records behind it."""
    producer = log.init_transactions("id")
    producer.begin()
    log.append(OUTPUT_0, "before")
    producer.produce(OUTPUT_0, "inside")
    log.append(OUTPUT_0, "behind")
    assert log.read_committed(OUTPUT_0) == [(0, "before")]
    producer.commit()
    assert log.read_committed(OUTPUT_0) == [(0, "before"), (1, "inside"), (2, "behind")]
    assert log.partitions[OUTPUT_0].end == 4


def test_a_transaction_that_times_out_fences_its_producer(log: FakeLog) -> None:
    """The coordinator aborts it and raises the epoch."""
    producer = log.init_transactions("id")
    producer.begin()
    log.time_out(log.open_transactions["id"])
    with pytest.raises(ProducerFenced):
        producer.commit()


def test_offsets_count_at_the_commit_and_cannot_be_read_before(log: FakeLog) -> None:
    """While a transaction holds offsets of a partition, nobody is told the committed one."""
    member = log.group.join("member")
    producer = log.init_transactions("id")
    producer.begin()
    producer.send_offsets({INPUT_0: 7}, member, log.group.generation)
    with pytest.raises(Unstable):
        log.stable_offset(INPUT_0)
    assert log.stable_offset(INPUT_1) == 0
    producer.commit()
    assert log.stable_offset(INPUT_0) == 7


def publish_unchecked(log: FakeLog, offsets: list[int], committed: int) -> None:
    """A transaction of a worker that may be wrong."""
    member = next(iter(log.group.members), None) or log.group.join("member")
    producer = log.init_transactions("id")
    producer.begin()
    for offset in offsets:
        producer.produce(OUTPUT_0, Output(INPUT_0, offset, checker.expected(SHORT)[1]))
    producer.send_offsets({INPUT_0: committed}, member, log.group.generation)
    producer.commit()


@pytest.mark.parametrize(
    ("transactions", "complaint"),
    [
        ([([0, 1], 2), ([2], 3)], None),
        ([([0, 2], 3)], "lost"),
        ([([0], 1), ([0, 1], 2)], "doubled"),
        ([([0, 2], 1)], "published, but not committed"),
        ([([1, 0], 2)], "out of order"),
    ],
)
def test_the_judge_sees_what_is_wrong(transactions: list[tuple[list[int], int]], complaint: str | None) -> None:
    """Each way to break exactly-once is called by its name, and a right log has no complaints."""
    world = World()
    world.put(*[SHORT] * 3)
    for offsets, committed in transactions:
        publish_unchecked(world.log, offsets, committed)
    found = world.violations()
    assert [complaint] * (complaint is not None) == [wrong.split(":")[0] for wrong in found]


def test_the_judge_sees_wrong_contents() -> None:
    """An output that says something else than its article is a complaint."""
    world = World()
    world.put(b"other\nWords Here")
    publish_unchecked(world.log, [0], 1)
    assert len(world.violations()) == 1
    assert "wrong" in world.violations()[0]
