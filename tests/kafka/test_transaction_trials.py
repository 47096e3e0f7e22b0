"""The trials of `enricher doctor --transactions` on a real broker: every promise holds, and each trial can fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.clients import config_for
from support.operating import admin_of
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.operate.trials import running, visibility
from enricher.operate.trials.clients import Clients, Outcome, Reader
from enricher.operate.trials.promises import PROMISES, Promise, Result
from enricher.operate.trials.running import Trials
from enricher.operate.trials.topics import TrialTopics
from enricher.worker.runtime.deadlines import Deadline

pytestmark = pytest.mark.broker


def promise_called(name: str) -> Promise:
    """One of the list."""
    return next(promise for promise in PROMISES if promise.name == name)


def tried(topics: Topics, *names: str) -> dict[str, Result]:
    """The outcomes of these promises, by name."""
    with Trials(config_for(topics), [promise_called(name) for name in names]) as trials:
        return {result.promise.name: result for result in trials.results(PATIENCE_S)}


def assert_nothing_is_left(bootstrap_servers: str, prefix: str) -> None:
    """No topic and no group of trials exists; they may take a moment to go."""
    admin = admin_of(bootstrap_servers)

    def are_gone() -> bool:
        names = [*admin.list_topics(timeout=PATIENCE_S).topics]
        names += [group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid]
        return not [name for name in names if name.startswith(prefix)]

    wait_until(are_gone, PATIENCE_S, "nothing is left")


def test_every_promise_holds_and_nothing_is_left(topics: Topics) -> None:
    """No topic and no group; the worker's own are not touched."""
    config = config_for(topics)
    with Trials(config) as trials:
        results = list(trials.results(PATIENCE_S))
    assert {result.promise.name: result.outcome.holds for result in results} == {p.name: True for p in PROMISES}, (
        results
    )
    assert trials.left_behind == []
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config))
    places = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    assert {end for _committed, end in places.values()} == {0}


class EveryReaderSeesAll(Clients):
    """As on a broker that has no isolation snapshot."""

    @contextmanager
    def consumer(self, isolation: str = "read_committed") -> Iterator[Consumer]:  # noqa: ARG002
        """A consumer that reads uncommitted records."""
        with super().consumer("read_uncommitted") as consumer:
            yield consumer

    @contextmanager
    def reader(self, isolation: str = "read_committed") -> Iterator[Reader]:  # noqa: ARG002
        """A reader of uncommitted records."""
        with super().reader("read_uncommitted") as reader:
            yield reader


class NoTwoIdsAreOne(Clients):
    """As on a broker that forgets transactional ids: producers do not fence each other."""

    _numbers = count()

    @contextmanager
    def producer(self, name: str = "first", timeout_s: float = 30.0) -> Iterator[Producer]:
        """A producer with a unique transactional id."""
        with super().producer(f"{name}-{next(self._numbers)}", timeout_s) as producer:
            yield producer


class NoGenerationIsChecked(Clients):
    """As on a broker before KIP-447: member and generation are not sent."""

    def send_offset(self, producer: Producer, offset: int, membership: bytes | None = None) -> None:  # noqa: ARG002
        """Send it without membership."""
        super().send_offset(producer, offset, None)


class OffsetsGoTheirOwnWay(Clients):
    """As on a broker that commits offsets when they come, whatever becomes of the transaction."""

    def send_offset(self, producer: Producer, offset: int, membership: bytes | None = None) -> None:  # noqa: ARG002
        """Commit it at once."""
        with self.consumer() as consumer:
            consumer.commit(offsets=[self.partition(offset)], asynchronous=False)


class NothingExpires(Clients):
    """As on a broker that never times transactions out."""

    @contextmanager
    def producer(self, name: str = "first", timeout_s: float = 30.0) -> Iterator[Producer]:  # noqa: ARG002
        """A producer whose transactions may stay open for long."""
        with super().producer(name, 300.0) as producer:
            yield producer


class OnlyOffsetsAreKept(Clients):
    """As on a broker that forgets the metadata of an offset."""

    def committed_offset(self, consumer: Consumer, timeout_s: float = 15.0) -> TopicPartition:
        """The bare offset."""
        return self.partition(super().committed_offset(consumer, timeout_s).offset)


@pytest.mark.parametrize(
    ("name", "broken", "seen"),
    [
        ("commit and abort", EveryReaderSeesAll, "a committed reader saw 'committed', 'aborted', 'last'"),
        ("last stable offset", EveryReaderSeesAll, "a committed reader saw 'before', 'open', 'behind'"),
        ("stable offsets", EveryReaderSeesAll, "with 2 sent and the transaction open the answer 1"),
        ("fencing by transactional id", NoTwoIdsAreOne, "the first producer's commit was accepted"),
        ("fencing by generation", NoGenerationIsChecked, "an older generation accepted"),
        ("offsets in the transaction", OffsetsGoTheirOwnWay, "with 2 sent 2, after the abort 2"),
        ("expiry by timeout", NothingExpires, "still open"),
        ("expiry by timeout", EveryReaderSeesAll, "saw 'abandoned', 'behind', 'last'"),
        ("text of a committed offset", OnlyOffsetsAreKept, "came back as None"),
    ],
)
def test_a_trial_can_tell_when_its_promise_does_not_hold(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, name: str, broken: type[Clients], seen: str
) -> None:
    """Each with clients that make this broker look as if it broke the promise."""
    monkeypatch.setattr(running, "Clients", broken)
    monkeypatch.setattr(visibility, "_SCAN_S", 1.0 if broken is NothingExpires else 30.0)
    outcome = tried(topics, name)[name].outcome
    assert outcome.holds is False, outcome
    assert seen in outcome.seen


def failing(error: Exception) -> Callable[[Clients], Outcome]:
    """A trial that fails."""

    def trial(_clients: Clients) -> Outcome:
        raise error

    return trial


def test_a_trial_that_fails_is_no_answer_and_costs_the_others_nothing(topics: Topics) -> None:
    """Whatever the error, a bug included: the promise counts as not tried, with the reason."""
    good = promise_called("commit and abort")
    bad = [
        replace(good, name="refused", trial=failing(BrokerError("no right"))),
        replace(good, name="bug", trial=failing(KeyError("x"))),
    ]
    with Trials(config_for(topics), [*bad, good]) as trials:
        outcomes = {result.promise.name: result.outcome for result in trials.results(PATIENCE_S)}
    assert outcomes["commit and abort"].holds is True
    assert [(outcomes[name].holds, outcomes[name].seen) for name in ("refused", "bug")] == [
        (None, "no right"),
        (None, "KeyError: 'x'"),
    ]


def test_a_trial_that_hangs_is_given_up(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their lines, the rest is said to be open at the limit, and what was made is deleted."""
    good, late_s = promise_called("commit and abort"), 0.0
    late_clock = partial(Deadline, clock=lambda: time.monotonic() + late_s)
    monkeypatch.setattr(running, "Deadline", late_clock)

    def hang(clients: Clients) -> Outcome:
        return Outcome(clients.wait(lambda: False, 600.0), "")

    config = config_for(topics)
    with Trials(config, [replace(good, name="hanging", trial=hang), good]) as trials:
        results = trials.results(limit_s=60)
        first = next(results)
        late_s = 60.0
        (hanging,) = results
    assert ("commit and abort", True) == (first.promise.name, first.outcome.holds)
    assert ("hanging", None) == (hanging.promise.name, hanging.outcome.holds)
    assert "not finished after 60 s" in hanging.outcome.seen
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config))


def test_what_is_stopped_in_the_middle_leaves_nothing(topics: Topics) -> None:
    """If the caller stops after the first result, by an exception or by closing, no topic is left."""

    def lines() -> Iterator[Result]:
        with Trials(config_for(topics)) as trials:
            yield from trials.results()

    coming = lines()
    next(coming)
    coming.close()  # type: ignore[attr-defined]  # it is a generator
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config_for(topics)))


def test_an_interruption_while_the_topic_is_made_leaves_none(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Ctrl-C, a topic that cannot be used yet is deleted as well."""

    def interrupted(_trials: TrialTopics, _name: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrialTopics, "_is_usable", interrupted)
    trials = Trials(config_for(topics))
    with pytest.raises(KeyboardInterrupt), trials:
        pass
    assert trials.left_behind == []
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config_for(topics)))


class NeverStarts(threading.Thread):
    """Ctrl-C comes before it has started."""

    def start(self) -> None:
        """Interrupt."""
        raise KeyboardInterrupt


def test_an_interruption_while_trials_are_started_leaves_none(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial whose thread has not started is not waited for."""
    trials = Trials(config_for(topics), [promise_called("commit and abort")])
    with monkeypatch.context() as patched:
        patched.setattr("enricher.operate.trials.running.threading.Thread", NeverStarts)
        with pytest.raises(KeyboardInterrupt), trials:
            next(trials.results())
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config_for(topics)))


def test_names_fit_what_kafka_allows_for_topics(topics: Topics) -> None:
    """A group's name may contain anything, at any length; a topic's name may not."""
    config = config_for(topics, group_id="news / Nachrichten \u00e4 " + "x" * 300)
    with Trials(config, [promise_called("commit and abort")]) as trials:
        assert [result.outcome.holds for result in trials.results()] == [True]
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config))
