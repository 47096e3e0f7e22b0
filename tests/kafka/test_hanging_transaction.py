"""An upstream transaction that stays open stops readers of committed records, and metrics show it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, opened, poll_until
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.worker.records import Partition
from enricher.worker.stats.snapshot import Unstable

pytestmark = pytest.mark.broker


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
