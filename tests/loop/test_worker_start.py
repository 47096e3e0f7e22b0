"""How a worker starts: it connects by the path that it recovers by."""

from __future__ import annotations

import pytest
from loop.fake_clock import FakeClock
from loop.faults import Faults
from loop.world import World, unguarded

from enricher.errors import BrokerError, EnricherError, MissingTopic, RecoveryExhausted, TransactionTrouble
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.runtime.deadlines import StopEvent

LIMITS = RecoveryLimits(timeout_s=100.0, attempt_timeout_s=30.0, max_in_a_row=5, missing_topic_s=10.0)
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
    return Recovery(ends, ends, LIMITS, clock=clock, guard=unguarded)  # type: ignore[arg-type]  # what is asked of them is there


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
