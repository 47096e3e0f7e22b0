"""The loop on a quiet day: how it starts, articles in, records out, nothing early or twice, and how it stops."""

from __future__ import annotations

import pytest
from loop.fake_clock import TICK_S, FakeClock
from loop.fake_sink import Output
from loop.faults import Faults
from loop.world import INPUT, LIMITS, LONG, SHORT, World, unguarded

from enricher.errors import BrokerError, EnricherError, MissingTopic, RecoveryExhausted, TransactionTrouble
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.records import Partition
from enricher.worker.runtime.deadlines import StopEvent

START_LIMITS = RecoveryLimits(timeout_s=100.0, attempt_timeout_s=30.0, max_in_a_row=5, missing_topic_s=10.0)
AWAY = TransactionTrouble("nobody answers")


class Ends:
    """Source and sink in one, which write down what is asked of them; `errors` come first, one for each attempt."""

    def __init__(self, clock: FakeClock, *errors: EnricherError, takes_s: float = 1.0) -> None:
        self._clock, self._errors, self._takes_s = clock, list(errors), takes_s
        self.asked: list[str] = []

    def open(self, listener: PartitionListener | None = None) -> None:
        """The sink's, and with a listener the source's."""
        self.asked.append("source" if listener else "sink")
        if not listener:
            self._fail()

    def recover(self) -> None:
        """The sink's."""
        self.asked.append("recover")

    def serve(self) -> None:
        """The sink's."""

    def rewind(self) -> None:
        """The source's."""
        self.asked.append("rewind")

    def _fail(self) -> None:
        self._clock.sleep(self._takes_s)
        if self._errors:
            raise self._errors.pop(0)


class NoPause(StopEvent):
    """Not set, and nobody waits for it."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """At once."""
        del timeout_s
        return self.is_set


def recovery_of(ends: Ends, clock: FakeClock) -> Recovery:
    """A recovery of these ends."""
    return Recovery(ends, ends, START_LIMITS, clock=clock, guard=unguarded)  # type: ignore[arg-type]  # what is asked of them is there


def test_the_group_is_joined_once_a_producer_has_fenced_those_before_it() -> None:
    """Before, an open transaction of an earlier process would hide the offsets from which it reads."""
    ends = Ends(clock := FakeClock(), AWAY, AWAY)
    assert recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]  # only handed on
    assert ["sink", "sink", "sink", "source"] == ends.asked


def test_a_start_has_the_bound_of_a_recovery() -> None:
    """Beyond, the exit code is that of a broker that does not come back."""
    ends = Ends(clock := FakeClock(), *[AWAY] * 1_000)
    with pytest.raises(RecoveryExhausted, match=r"not connected within 100 s.*nobody answers"):
        recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]
    assert 100 < clock() < 110


def test_a_missing_topic_has_a_shorter_bound_from_the_first_answer() -> None:
    """A broker that was away for long and comes up without its topics is given the time to hear of them."""
    missing = MissingTopic("no topic 'x'")
    ends = Ends(clock := FakeClock(), *[AWAY] * 50, *[missing] * 5)
    assert recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]
    ends = Ends(clock := FakeClock(), *[AWAY] * 50, *[missing] * 50)
    with pytest.raises(BrokerError, match="no topic 'x'"):
        recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]
    assert 60 < clock() < 70


def test_a_worker_that_is_stopped_before_it_connects_reads_nothing() -> None:
    """It closes what it has, and `connected` is never called."""
    process = World().start(fault=Faults("poll", AssertionError("it read")))
    process.worker.stop()
    process.worker.run(lambda: pytest.fail("it never was"))


def test_every_turn_serves_the_sink_once() -> None:
    """Also one that has nothing to publish: a client keeps its events until somebody takes them."""
    process = World().start().joined()
    for turns in range(1, 6):
        process.worker.step()
        assert turns == process.sink.served


def test_caught_up_ends_the_run() -> None:
    """`run` returns when the group has committed the ends that there were at the start, and leaves the group."""
    world = World()
    world.put(SHORT, LONG, None)
    world.put_transaction(SHORT, partition=1)
    process = world.start(until_caught_up=True)
    process.worker.run()
    assert world.done()
    assert world.violations() == []
    assert world.log.group.members == {}
    assert process.engine.closed
    assert process.tokenizer.closed
    assert process.schemas.closed


def test_stopping_publishes_what_is_on_the_device_and_leaves_the_rest() -> None:
    """After `stop` the batches under way are finished and published; what is only queued is left to the next owner."""
    world = World(partitions=1)
    process = world.start()
    world.put(*[SHORT] * 200)

    def stop_when_busy() -> None:
        if process.engine.busy == 4:
            process.worker.stop()
        else:
            world.clock.after(TICK_S, stop_when_busy)

    world.clock.after(TICK_S, stop_when_busy)
    process.worker.run()
    committed = world.log.committed[Partition(INPUT, 0)]
    assert 0 < committed < 200
    assert process.engine.busy == 0
    assert world.violations() == []
    assert process.counters.published == committed
    successor = world.start().joined()
    world.steps(successor, until=world.done)


def test_stopping_does_not_wait_for_a_device_that_hangs() -> None:
    """The drain has a bound: what does not come back is left to the next owner."""
    world = World(partitions=1)
    process = world.start()
    world.put(SHORT)
    process.engine.hangs = True
    world.clock.after(0.5, process.worker.stop)
    process.worker.run()
    assert world.clock() <= 0.5 + LIMITS.drain_timeout_s + LIMITS.idle_wait_s
    assert world.log.committed == {Partition(INPUT, 0): 0}


def test_an_article_without_tokens_is_enriched_with_nothing() -> None:
    """No windows means that there is nothing to wait for: an empty record comes out."""
    world = World()
    world.put(b" \n ")
    world.steps(world.start().joined(), until=world.done)
    (output,) = world.outputs()
    assert isinstance(output, Output)
    assert output.content == []
