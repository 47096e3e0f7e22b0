"""Transactions that fail, or of which nobody knows whether they did: nothing lost, nothing doubled, one way out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop.fake_clock import TICK_S
from loop.fake_sink import DEAD_LETTERS, Output
from loop.faults import Faults
from loop.world import INPUT, INVALID, LONG, SHORT, World

from enricher.errors import BrokerError, EnricherError, Fenced, RecoveryExhausted, TransactionTrouble
from enricher.worker.loop.recovery import RecoveryLimits
from enricher.worker.records import LetterForm, Partition, RawRecord

STEPS = ["begin", "produce", "send_offsets", "commit", "committed"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("visit", [1, 2, 3])
def test_trouble_at_any_step_of_a_transaction_loses_and_doubles_nothing(step: str, visit: int) -> None:
    """Before the commit took effect the outputs are written again, after it they are not: the committed offset decides."""
    world = World(seed=visit)
    process = world.start(fault=Faults(step, TransactionTrouble(step), visit)).joined()
    for index in range(12):
        world.clock.after(index * 96 * TICK_S, lambda: world.put(SHORT, None, LONG, INVALID))
    world.steps(process, until=lambda: world.clock() > 1.25 and world.done())
    assert process.counters.recoveries == 1


@pytest.mark.parametrize("step", ["recover", "rewind"])
def test_a_recovery_that_fails_is_tried_again(step: str) -> None:
    """Trouble while recovering, even with half of the partitions rewound, only means another attempt."""
    world = World(partitions=4)
    faults = Faults("commit", TransactionTrouble("commit"), 1)
    more = Faults(step, TransactionTrouble(step), 1, 2, 5)

    def fault(at: str) -> None:
        faults(at)
        more(at)

    process = world.start(fault=fault).joined()
    for partition in range(4):
        world.put(*[SHORT] * 10, partition=partition)
    world.steps(process, until=world.done)
    assert process.counters.recoveries == 1
    assert more.seen["recover"] >= 3


def test_stopping_in_a_recovery_that_is_half_done_commits_nothing() -> None:
    """With a new producer and positions that are not rewound, one more transaction would skip what was forgotten."""
    world = World(partitions=1)
    process = world.start(fault=Faults("commit", TransactionTrouble("commit"), 1))
    world.put(*[SHORT] * 10)

    def fail_and_stop() -> None:
        process.worker.stop()
        raise TransactionTrouble("no offsets")

    process.source.rewind = fail_and_stop  # type: ignore[method-assign]
    process.worker.run()
    assert world.log.committed == {}
    assert world.outputs() == []
    assert process.counters.recoveries == 1


def refuses_every_list(output: Output) -> bool:
    """A broker with a rule against all enriched records."""
    return isinstance(output.content, list)


def test_refused_outputs_named_one_at_a_time_all_become_dead_letters() -> None:
    """Each refusal is a step forward: neither do two of them take turns for ever, nor do they count as hopeless."""
    world = World()
    process = world.start(refuses=refuses_every_list).joined()
    world.put(*[SHORT] * 20)
    read, records, turns = process.intake.read, list[RawRecord](), 0
    process.intake.read = lambda raw: records.append(raw) or read(raw)  # type: ignore[func-returns-value]
    while not world.done():
        process.worker.step()
        turns += 1
        assert turns < 2_000
    assert world.violations(refuses_every_list) == []
    assert len(world.outputs(DEAD_LETTERS)) == 20
    assert {None} == {process.worker.recovery.refusal_of(raw) for raw in records}, "nothing is remembered for ever"


def test_a_record_of_a_topic_that_was_made_again_inherits_no_refusal() -> None:
    """The same partition and offset, and the id of another topic."""
    world = World(partitions=1)
    process = world.start(refuses=refuses_every_list).joined()
    world.put(SHORT)
    while not process.counters.recoveries:
        process.worker.step()
    refused = RawRecord(Partition(INPUT, 0), 0, b"key", SHORT)
    assert process.worker.recovery.refusal_of(refused) is not None
    assert process.worker.recovery.refusal_of(replace(refused, topic_id="bmV3IHRvcGljLCBuZXcgaQ")) is None


@pytest.mark.parametrize("taken", LetterForm)
def test_a_dead_letter_that_the_broker_refuses_is_written_smaller(taken: LetterForm) -> None:
    """One record never ends the worker while there is a smaller form; the articles around it are enriched."""

    def refuses(output: Output) -> bool:
        return output.form is not None and output.form < taken

    world = World()
    process = world.start(refuses=refuses).joined()
    world.put(SHORT, INVALID, SHORT)
    world.steps(process, until=world.done)
    (letter,) = world.outputs(DEAD_LETTERS)
    assert isinstance(letter, Output)
    assert ("decode", taken) == (letter.content, letter.form)
    assert len(world.outputs()) == 2
    assert process.counters.recoveries == taken


def test_a_bare_dead_letter_that_the_broker_refuses_ends_the_process() -> None:
    """There is nothing left to write instead, so somebody must look: which record, and what to compare."""
    world = World()
    process = world.start(refuses=lambda _output: True)
    world.put(SHORT)
    with pytest.raises(BrokerError, match=r"articles\[0\] offset 0.*max\.message\.bytes"):
        process.worker.run()
    assert world.outputs() == world.outputs(DEAD_LETTERS) == []
    assert set(world.log.committed.values()) == {0}


def test_recovery_is_exhausted_when_its_time_is_over() -> None:
    """A broker that does not come back ends the process after the bound, not before."""
    world = World()
    process = world.start(fault=Faults("commit", TransactionTrouble("commit"), 1))
    world.put(SHORT)

    def fail_slowly() -> None:
        world.clock.sleep(7.0)
        raise TransactionTrouble("still away")

    process.sink.recover = fail_slowly  # type: ignore[method-assign]
    with pytest.raises(RecoveryExhausted, match="still away"):
        process.worker.run()
    assert 60 < world.clock() < 60 + 2 * 7 + 1


def test_recovery_is_exhausted_when_no_transaction_succeeds_any_more() -> None:
    """Recoveries that succeed, each followed by the same trouble, have a bound as well."""
    world = World()
    process = world.start(fault=Faults("commit", TransactionTrouble("every time")))
    world.put(SHORT)
    with pytest.raises(RecoveryExhausted, match=r"5 recoveries in a row.*every time"):
        process.worker.run()
    assert process.counters.recoveries == 6


@pytest.mark.parametrize("error", [Fenced("a newer producer"), BrokerError("no right")])
@pytest.mark.parametrize("step", ["commit", "recover"])
def test_fatal_errors_leave_the_loop(error: EnricherError, step: str) -> None:
    """No recovery is tried for what only a person can mend; the group is left on the way out."""
    world = World()
    faults = [Faults(step, error)] + [Faults("commit", TransactionTrouble("first"))] * (step == "recover")

    def fault(at: str) -> None:
        for one in faults:
            one(at)

    process = world.start(fault=fault)
    world.put(SHORT)
    with pytest.raises(type(error), match=str(error)):
        process.worker.run()
    assert world.log.group.members == {}
    assert world.log.committed == {}


def test_a_worker_that_is_fenced_when_it_is_asked_to_stop_ends_in_order() -> None:
    """What it could not publish is read again; a stop that was asked for is no failure."""
    world = World()
    process = world.start().joined()
    world.put(*[SHORT] * 10)
    world.steps(process, until=lambda: process.engine.busy > 0)
    world.log.init_transactions("worker-0")
    process.drain()
    process.close()
    assert world.violations() == []
    assert world.log.group.members == {}


def test_trouble_before_recovery_waits_a_little_longer_each_time() -> None:
    """The first attempt comes at once; after trouble in a row, and after attempts that fail, the pauses double."""
    world = World()
    process = world.start(recovery=RecoveryLimits(60, 30, max_in_a_row=5, first_pause_s=1.0, longest_pause_s=4.0))
    waits: list[float] = []

    class Stopping:
        def wait(self, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return False

    for _ in range(5):
        process.worker.recovery.run(TransactionTrouble("again"), Stopping())  # type: ignore[arg-type]
    assert waits == [0.0, 2.0, 4.0, 4.0, 4.0]
    process.worker.recovery.note_success({})
    process.worker.recovery.run(TransactionTrouble("again"), Stopping())  # type: ignore[arg-type]
    assert waits[-1] == 0.0
