"""What the client tells beside records: connected brokers, ends of partitions, open transactions; and timestamps."""

from __future__ import annotations

import orjson
import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, opened, poll_until
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.worker.kafka.metadata import plausible_timestamp_s
from enricher.worker.kafka.properties import STATISTICS_INTERVAL_MS
from enricher.worker.kafka.statistics import Statistics
from enricher.worker.records import Partition
from enricher.worker.stats import Unstable


def told(
    *states: str, ends: dict[int, int] | None = None, highs: dict[int, int] | None = None, fetch: str = "active"
) -> str:
    """As librdkafka writes them; a bootstrap connection and a coordinator's are among the brokers."""
    highs = {**(ends or {}), **(highs or {})}
    brokers = {f"b{number}:9092/{number}": {"nodeid": number, "state": state} for number, state in enumerate(states)}
    brokers["bootstrap"] = {"nodeid": -1, "state": "UP"}
    partitions: dict[str, dict[str, int | str]] = {
        str(number): {"partition": number, "ls_offset": end, "hi_offset": highs[number], "fetch_state": fetch}
        for number, end in (ends or {}).items()
    }
    partitions["-1"] = {"partition": -1, "ls_offset": 99, "hi_offset": 99, "fetch_state": "none"}
    return orjson.dumps({"brokers": brokers, "topics": {"articles": {"partitions": partitions}}}).decode()


def test_brokers_that_are_up_are_counted() -> None:
    """By their ids: bootstrap addresses do not count."""
    statistics = Statistics(["articles"], clock=lambda: 0.0)
    assert statistics.connection(joined=False).brokers is None
    statistics(told("UP", "DOWN", "UP"))
    assert (2, True) == (statistics.connection(joined=True).brokers, statistics.connection(joined=True).joined)


def test_how_long_none_was_there_is_counted_from_when_it_was_told() -> None:
    """The time without brokers is reset when one is back."""
    now_s = [100.0]
    statistics = Statistics(["articles"], clock=lambda: now_s[0])
    statistics(told("DOWN"))
    now_s[0] = 105.0
    statistics(told("DOWN"))
    now_s[0] = 107.0
    assert (0, 7.0) == (statistics.connection(joined=True).brokers, statistics.connection(joined=True).away_s)
    statistics(told("UP"))
    assert (1, 0.0) == (statistics.connection(joined=True).brokers, statistics.connection(joined=True).away_s)


def test_what_was_told_long_ago_is_not_known_any_more() -> None:
    """A recovery does not poll, so the client delivers no statistics."""
    now_s = [0.0]
    statistics = Statistics(["articles"], clock=lambda: now_s[0])
    statistics(told("UP"))
    now_s[0] = 10 * STATISTICS_INTERVAL_MS / 1000
    assert statistics.connection(joined=True).brokers is None


def test_ends_are_those_that_a_reader_of_committed_records_sees() -> None:
    """Unknown ones (below 0) are left out."""
    statistics = Statistics(["articles"], clock=lambda: 0.0)
    statistics(told("UP", ends={0: 7, 1: -1001, 2: 0}))
    assert {Partition("articles", 0): 7, Partition("articles", 2): 0} == statistics.connection(joined=True).ends


def test_offsets_behind_the_last_stable_one_are_counted_with_their_age() -> None:
    """More that arrives behind it changes nothing; when it moves, the next transaction begins at age 0."""
    now_s, zero = [100.0], Partition("articles", 0)
    statistics = Statistics(["articles"], clock=lambda: now_s[0])

    def unstable(stable: int, high: int, fetch: str = "active") -> dict[Partition, Unstable]:
        now_s[0] += 5.0
        statistics(told("UP", ends={0: stable}, highs={0: high}, fetch=fetch))
        return dict(statistics.connection(joined=True).unstable)

    assert unstable(10, 10) == {zero: Unstable()}
    assert unstable(10, 12) == {zero: Unstable(2, 0.0)}
    assert unstable(10, 15) == {zero: Unstable(5, 5.0)}
    assert unstable(13, 15) == {zero: Unstable(2, 0.0)}
    assert unstable(13, 15) == {zero: Unstable(2, 5.0)}
    assert unstable(13, 15, fetch="none") == {}
    assert unstable(13, 15) == {zero: Unstable(2, 0.0)}
    assert unstable(15, 15) == {zero: Unstable()}


NOW_S = 1_790_000_000.0
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("timestamp_s", "believed"),
    [
        pytest.param(NOW_S, True, id="now"),
        pytest.param(NOW_S - 20 * 365 * DAY_S, True, id="an archive"),
        pytest.param(946_684_800.0, True, id="2000"),
        pytest.param(NOW_S + 0.9 * DAY_S, True, id="a clock that is some hours ahead"),
        pytest.param(-0.001, False, id="none"),
        pytest.param(0.0, False, id="zero"),
        pytest.param(NOW_S / 1_000, False, id="seconds for milliseconds"),
        pytest.param(946_684_799.0, False, id="1999"),
        pytest.param(NOW_S + 1.1 * DAY_S, False, id="the day after tomorrow"),
        pytest.param(NOW_S * 1_000, False, id="microseconds"),
        pytest.param(float(2**63) / 1_000, False, id="the last"),
    ],
)
def test_a_time_that_nobody_can_mean_is_unknown(timestamp_s: float, *, believed: bool) -> None:
    """Its age would be decades, or negative for ever."""
    assert plausible_timestamp_s(timestamp_s, NOW_S) == (timestamp_s if believed else None)


@pytest.mark.broker
def test_open_transaction_upstream_shows_as_offsets_and_age(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records behind it are counted, other publishers' included; after its end the count is 0."""
    monkeypatch.setattr("enricher.worker.kafka.properties.STATISTICS_INTERVAL_MS", 500)
    zero, before, behind = Partition(topics.input, 0), 2, 3
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "enable.idempotence": True})
    hanging = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": topics.group})
    hanging.init_transactions(PATIENCE_S)
    source, _ = opened(config_for(topics))

    def unstable() -> Unstable | None:
        return source.connection().unstable.get(zero)

    def publish(count: int, by: Producer) -> None:
        for number in range(count):
            by.produce(topics.input, b"%d" % number, partition=0)
        assert by.flush(PATIENCE_S) == 0

    publish(before, producer)
    poll_until(source, lambda: source.connection().ends.get(zero) == before, PATIENCE_S)
    assert unstable() == Unstable()
    hanging.begin_transaction()
    publish(1, hanging)
    publish(behind, producer)
    # Told twice, so that an age can be seen.
    poll_until(source, lambda: (unstable() or Unstable()).age_s > 0, PATIENCE_S)
    held_back = unstable()
    assert held_back is not None
    assert held_back.offsets == 1 + behind
    assert source.connection().ends[zero] == before, "the lag alone says that all is read"
    hanging.abort_transaction(PATIENCE_S)
    poll_until(source, lambda: unstable() == Unstable(), PATIENCE_S)
