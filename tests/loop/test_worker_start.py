"""How a worker starts: it connects by the path that it recovers by; and what a fenced one asks before it recovers."""

from __future__ import annotations

import logging
import re

import pytest
from loop.fake_clock import FakeClock
from loop.faults import Faults
from loop.world import SHORT, World, unguarded

from enricher.errors import BrokerError, EnricherError, Fenced, MissingTopic, RecoveryExhausted, TransactionTrouble
from enricher.errors import ProducerFenced as OurProducerFenced
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.runtime.wakeup import StopEvent

LIMITS = RecoveryLimits(timeout_s=100.0, attempt_timeout_s=30.0, max_in_a_row=5, missing_topic_s=10.0)
AWAY = TransactionTrouble("nobody answers")


class Ends:
    """Source, sink and rivals in one, which write down what is asked of them; `errors` come first, one for each attempt."""

    def __init__(self, clock: FakeClock, *errors: EnricherError, takes_s: float = 1.0) -> None:
        self._clock, self._errors, self._takes_s = clock, list(errors), takes_s
        self.asked: list[str] = []

    def open(self, listener: PartitionListener | None = None) -> None:
        """The sink's, and with a listener the source's."""
        self.asked.append("source" if listener else "sink")
        if not listener:
            self._fail()

    def begin(self) -> None:
        """The rivals'."""
        self.asked.append("begin")

    def rule_out(self, since_s: float, stopping: StopEvent) -> None:
        """The rivals'."""
        del since_s, stopping
        self.asked.append("rule_out")
        self._fail()

    def look(self) -> None:
        """The rivals'."""

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
    return Recovery(ends, ends, LIMITS, clock=clock, guard=unguarded, rivals=ends)  # type: ignore[arg-type]  # what is asked of them is there


def test_rivals_are_noted_after_the_sink_and_before_the_group_is_joined() -> None:
    """After, because then a broker answers; before, so that members seen by then are older than this process."""
    ends = Ends(clock := FakeClock(), AWAY, AWAY)
    assert recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]  # only handed on
    assert ["sink", "sink", "sink", "begin", "source"] == ends.asked


def test_a_start_that_waits_says_so_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """At once, then every ten seconds, with the time and the bound."""
    caplog.set_level(logging.INFO)
    ends = Ends(clock := FakeClock(), *[AWAY] * 35)
    assert recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]
    waited = [re.match(r"not connected after (\d+) of 100 s: nobody answers", line) for line in caplog.messages]
    assert [1, 11, 21, 31] == [int(match[1]) for match in waited if match]


def test_a_start_has_the_bound_of_a_recovery() -> None:
    """Beyond, the exit code is that of a broker that does not come back."""
    ends = Ends(clock := FakeClock(), *[AWAY] * 1_000)
    with pytest.raises(RecoveryExhausted, match=r"not connected within 100 s.*nobody answers"):
        recovery_of(ends, clock).connect(World(), NoPause())  # type: ignore[arg-type]
    assert 100 < clock() < 110


def test_a_missing_topic_has_a_shorter_bound_that_begins_when_somebody_answers() -> None:
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


def test_connected_is_called_once_before_the_first_record_is_read() -> None:
    """Health and a parent are told then."""
    world, told = World(), []
    process = world.start(until_caught_up=True)
    world.put(SHORT)
    process.worker.run(lambda: told.append(len(process.source.polls)))
    assert [0] == told
    assert world.done()


@pytest.mark.parametrize(
    ("trouble", "asked"),
    [(OurProducerFenced("x"), ["rule_out", "recover", "rewind"]), (TransactionTrouble("x"), ["recover", "rewind"])],
)
def test_only_a_fenced_worker_asks_for_rivals_before_it_takes_a_new_producer(
    trouble: TransactionTrouble, asked: list[str]
) -> None:
    """The new producer would fence the rival."""
    ends = Ends(clock := FakeClock())
    assert recovery_of(ends, clock).run(trouble, NoPause())
    assert asked == ends.asked


def test_a_fenced_worker_keeps_its_id_to_itself_until_the_rival_is_known() -> None:
    """Trouble is asked about again, a rival is the end."""
    ends = Ends(clock := FakeClock(), TransactionTrouble("cannot tell"), Fenced("a rival"))
    with pytest.raises(Fenced):
        recovery_of(ends, clock).run(OurProducerFenced("x"), NoPause())
    assert ["rule_out", "rule_out"] == ends.asked
