"""The trials of `enricher doctor --transactions` on a real broker: every promise holds, and each trial can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.clients import config_for
from support.operating import admin_of
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.operate.doctor import transactions as running
from enricher.operate.doctor.promises import PROMISES, Clients, Outcome, Promise
from enricher.operate.doctor.transactions import Trials

pytestmark = pytest.mark.broker


def promise_called(name: str) -> Promise:
    """One of the list."""
    return next(promise for promise in PROMISES if promise.name == name)


def tried(topics: Topics, promises: Sequence[Promise]) -> dict[str, Outcome]:
    """The outcomes of these promises, by name."""
    with Trials(config_for(topics), promises) as trials:
        return {promise.name: outcome for promise, outcome in trials.outcomes()}


def assert_nothing_is_left(bootstrap_servers: str, prefix: str) -> None:
    """No topic of trials exists; it may take a moment to go."""
    admin = admin_of(bootstrap_servers)

    def are_gone() -> bool:
        return not [name for name in admin.list_topics(timeout=PATIENCE_S).topics if name.startswith(prefix)]

    wait_until(are_gone, PATIENCE_S, "nothing is left")


class EveryReaderSeesAll(Clients):
    """As on a broker that has no isolation snapshot."""

    @contextmanager
    def consumer(self, isolation: str = "read_committed") -> Iterator[Consumer]:  # noqa: ARG002
        """A consumer that reads uncommitted records."""
        with super().consumer("read_uncommitted") as consumer:
            yield consumer


class NoTwoIdsAreOne(Clients):
    """As on a broker that forgets transactional ids: producers do not fence each other."""

    _numbers = count()

    @contextmanager
    def producer(self, name: str = "first") -> Iterator[Producer]:
        """A producer with a unique transactional id."""
        with super().producer(f"{name}-{next(self._numbers)}") as producer:
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


class OnlyOffsetsAreKept(Clients):
    """As on a broker that forgets the metadata of an offset."""

    def committed_offset(self, consumer: Consumer, timeout_s: float = 15.0) -> TopicPartition:
        """The bare offset."""
        return self.partition(super().committed_offset(consumer, timeout_s).offset)


@pytest.mark.parametrize(
    ("name", "broken", "seen"),
    [
        ("commit and abort", EveryReaderSeesAll, "a committed reader saw 'before', 'aborted', 'behind'"),
        ("fencing by transactional id", NoTwoIdsAreOne, "the first producer's commit was accepted"),
        ("fencing by generation", NoGenerationIsChecked, "an older generation was accepted"),
        ("offsets in the transaction", OffsetsGoTheirOwnWay, "after the abort 2"),
        ("offsets in the transaction", OnlyOffsetsAreKept, "with None instead of its text"),
    ],
)
def test_a_trial_can_tell_when_its_promise_does_not_hold(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, name: str, broken: type[Clients], seen: str
) -> None:
    """Each with clients that make this broker look as if it broke the promise."""
    monkeypatch.setattr(running, "Clients", broken)
    outcome = tried(topics, [promise_called(name)])[name]
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
    config = config_for(
        topics, group_id="news / Nachrichten \u00e4 " + "x" * 300
    )  # a topic may not be called like that
    with Trials(config, [*bad, good]) as trials:
        outcomes = {promise.name: outcome for promise, outcome in trials.outcomes()}
    assert outcomes["commit and abort"].holds is True
    assert [(outcomes[name].holds, outcomes[name].seen) for name in ("refused", "bug")] == [
        (None, "no right"),
        (None, "KeyError: 'x'"),
    ]
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config))


def test_a_trial_that_would_begin_too_late_is_not_tried(topics: Topics) -> None:
    """It counts as not tried, and the topic is deleted."""
    config = config_for(topics)
    with Trials(config, [promise_called("commit and abort")]) as trials:
        [(_, outcome)] = trials.outcomes(limit_s=0.0)
    assert (None, "not begun within 0 s") == (outcome.holds, outcome.seen)
    assert_nothing_is_left(topics.bootstrap_servers, Trials.prefix_of(config))
