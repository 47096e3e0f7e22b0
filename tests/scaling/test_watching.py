"""What is kept between KEDA's calls: the last backlog and the connections, but never a stale answer."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import replace

import pytest
from scaling.building import backlog
from support.clock import Clock
from support.patience import PATIENCE_S

from enricher.errors import BrokerError
from enricher.operate.scaling import watching
from enricher.operate.scaling.backlog import Backlog
from enricher.operate.scaling.policy import Rules
from enricher.operate.scaling.reading import BacklogReader
from enricher.operate.scaling.trigger import Trigger
from enricher.operate.scaling.watching import IDLE_S, TooMany, Watch, Watches
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.settings import Settings


class FakeReader(BacklogReader):
    """Returns a given backlog, and counts calls. Has no client."""

    def __init__(self) -> None:
        self.seen: Backlog | BrokerError = backlog(done=0, written=10, age_s=5.0)
        self.looks = self.closes = 0
        self.hold: threading.Event | None = None
        self.holding = threading.Event()

    def look(self, timeout_s: float | None = None) -> Backlog:
        """As `BacklogReader.look`."""
        self.looks += 1
        assert timeout_s is not None
        if self.hold:
            self.holding.set()
            assert self.hold.wait(PATIENCE_S)
        if isinstance(self.seen, BrokerError):
            raise self.seen
        return self.seen

    def close(self) -> None:
        """As `BacklogReader.close`."""
        self.closes += 1


def watched() -> tuple[Watch, FakeReader, Clock, list[int]]:
    """A watch with a fake reader, and a list with an item for each reader that was made."""
    reader, clock, made = FakeReader(), Clock(), list[int]()

    def make() -> FakeReader:
        made.append(1)
        return reader

    return Watch(make, clock=clock), reader, clock, made


def test_what_was_seen_a_moment_ago_is_answered_again() -> None:
    """KEDA and the autoscaler ask several times in a row; a later call reads again, over the same connections."""
    watch, reader, clock, made = watched()
    assert watch.see(Rules(), 1.0) == watch.see(Rules(), 1.0)
    assert reader.looks == 1
    clock.now_s += 2
    watch.see(Rules(), 1.0)
    assert (reader.looks, len(made)) == (2, 1)


def test_two_sets_of_rules_share_a_look() -> None:
    """Two ScaledObjects can name one group."""
    watch, reader, _, _ = watched()
    reader.seen = backlog(done=0, written=100_000, age_s=600.0, workers=4, partitions=8)
    assert watch.see(Rules(max_workers=2), 1.0).wanted == 2
    assert watch.see(Rules(), 1.0).wanted == 8
    assert reader.looks == 1


def test_a_failed_look_is_an_error_and_the_next_one_uses_new_connections() -> None:
    """Never the previous answer, never 0; and no client in an unknown state is kept."""
    watch, reader, clock, made = watched()
    watch.see(Rules(), 1.0)
    clock.now_s += 10
    reader.seen, good = BrokerError("away"), reader.seen
    for _ in range(2):
        with pytest.raises(BrokerError, match="away"):
            watch.see(Rules(), 1.0)
    assert (reader.closes, len(made)) == (2, 2)
    reader.seen = good
    assert watch.see(Rules(), 1.0).load.waiting == 10


def test_a_call_does_not_wait_for_another_ones_look_beyond_its_time() -> None:
    """If brokers hang, each call waits for its own deadline only."""
    watch, reader, _, _ = watched()
    reader.hold = threading.Event()
    first = threading.Thread(target=watch.see, args=(Rules(), 60.0))
    first.start()
    try:
        assert reader.holding.wait(PATIENCE_S)
        with pytest.raises(BrokerError, match="another call"):
            watch.see(Rules(), 0.01)
    finally:
        reader.hold.set()
        first.join()
    assert reader.looks == 1


def test_unknown_ages_count_as_old(caplog: pytest.LogCaptureFixture) -> None:
    """A record without a timestamp does not count as new."""
    caplog.set_level(logging.INFO)
    watch, reader, _, _ = watched()
    reader.seen = backlog(done=0, written=100, age_s=None, workers=1, partitions=4)
    seen = watch.see(Rules(), 1.0)
    assert seen.wanted == 2
    assert "unknown" in str(seen)


class Readers:
    """Makes fake readers, one for each group."""

    def __init__(self) -> None:
        self.made: dict[str, FakeReader] = {}

    def __call__(self, config: KafkaConfig) -> FakeReader:
        """As `BacklogReader`."""
        return self.made.setdefault(config.group_id, FakeReader())

    @property
    def open(self) -> int:
        """How many readers are not closed."""
        return sum(reader.closes == 0 for reader in self.made.values())


CONFIG = kafka_config(Settings())


def trigger(group: str) -> Trigger:
    """A trigger for that group on the configured topic."""
    return Trigger(group, CONFIG.input_topic, Rules())


def test_invented_groups_leave_the_configured_one_its_place() -> None:
    """Any client may name any group; few are watched, and the configured pair is always answered."""
    readers, clock = Readers(), Clock()
    watches = Watches(CONFIG, max_others=3, make_reader=readers, clock=clock)
    refused = 0
    for number in range(32):
        try:
            watches.see(trigger(f"invented-{number}"))
        except TooMany:
            refused += 1
    assert (3, 29) == (readers.open, refused)
    assert 10 == watches.see(trigger(CONFIG.group_id)).load.waiting


def test_what_was_just_seen_is_answered_without_a_look() -> None:
    """So a flood of calls takes no threads; nothing is answered that is older than two seconds, or was never seen."""
    readers, clock = Readers(), Clock()
    watches = Watches(CONFIG, make_reader=readers, clock=clock)
    assert watches.fresh(trigger("group")) is None
    seen = watches.see(trigger("group"))
    assert watches.fresh(trigger("other")) is None
    clock.now_s += 1.9
    assert seen == watches.fresh(trigger("group"))
    clock.now_s += 0.2
    assert watches.fresh(trigger("group")) is None


def test_an_idle_group_is_replaced_by_a_new_one() -> None:
    """The least recently used one is dropped with its connections; the others and the configured one stay."""
    readers, clock = Readers(), Clock()
    watches = Watches(CONFIG, max_others=2, make_reader=readers, clock=clock)
    for group in (CONFIG.group_id, "first", "second"):
        watches.see(trigger(group))
    clock.now_s += IDLE_S
    watches.see(trigger("second"))
    watches.see(trigger("third"))
    assert [0, 1, 0, 0] == [readers.made[name].closes for name in (CONFIG.group_id, "first", "second", "third")]
    with pytest.raises(TooMany, match="max-others"):
        watches.see(trigger("fourth"))


def test_questions_about_others_leave_threads_for_the_configured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hang as long as a broker does, so their number is limited."""
    monkeypatch.setattr(watching, "_MAX_OTHER_CALLS", 1)
    readers = Readers()
    slow = readers.made["slow"] = FakeReader()
    slow.hold = threading.Event()
    watches = Watches(CONFIG, make_reader=readers)
    first = threading.Thread(target=watches.see, args=(trigger("slow"),))
    first.start()
    try:
        assert slow.holding.wait(PATIENCE_S)
        with pytest.raises(TooMany, match="at once"):
            watches.see(trigger("other"))
        assert 10 == watches.see(trigger(CONFIG.group_id)).load.waiting
    finally:
        slow.hold.set()
        first.join()
    assert 10 == watches.see(trigger("other")).load.waiting


def test_one_record_without_a_time_does_not_make_all_that_waits_overdue() -> None:
    """Anyone can publish one: the known ages decide. If no other record waits, the age is unknown."""
    watch, reader, clock, _ = watched()
    fresh = backlog(done=0, written=100, age_s=1.0, partitions=4)
    odd = replace(fresh.partitions[0], age_s=None)
    reader.seen = replace(fresh, partitions=[odd, *fresh.partitions[1:]])
    assert (1.0, 1) == (watch.see(Rules(), 1.0).load.age_s, watch.see(Rules(), 1.0).wanted)
    clock.now_s += 10
    idle = backlog(done=5, written=5, partitions=3)
    reader.seen = replace(fresh, partitions=[odd, *idle.partitions])
    assert watch.see(Rules(), 1.0).load.age_s == math.inf
