"""A start that is sure to end ends before the model is loaded; no other does. Rights: `tests/security`."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.clients import config_for
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.errors import BrokerError, SettingsError
from enricher.worker.kafka.precheck import check_start


@pytest.mark.broker
def test_a_start_that_can_go_on_is_let_through(topics: Topics) -> None:
    """With a broker without ACLs, and a group that does not exist yet."""
    check_start(config_for(topics))


@pytest.mark.broker
def test_a_missing_topic_ends_it_within_the_request_timeout(topics: Topics) -> None:
    """Not sooner: a broker that has just started knows no topic yet."""
    config = config_for(topics, output_topic="nowhere", request_timeout_s=0.5)
    with pytest.raises(BrokerError, match="no topic 'nowhere'"):
        check_start(config)
    late = f"{topics.output}.late"

    def create(_pause_s: float) -> None:
        admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
        if late not in admin.list_topics(timeout=PATIENCE_S).topics:
            admin.create_topics([NewTopic(late, num_partitions=4, replication_factor=1)])[late].result(PATIENCE_S)
        time.sleep(0.1)

    check_start(config_for(topics, output_topic=late, request_timeout_s=30.0), pause=create)


@pytest.mark.broker
def test_too_few_partitions_end_it(topics: Topics) -> None:
    """As when the source is opened, with the same message; but not the indexer, whose letters are placed by key."""
    few = f"{topics.output}.few"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.create_topics([NewTopic(few, num_partitions=1, replication_factor=1)])[few].result(PATIENCE_S)
    config = config_for(topics, output_topic=few)
    with pytest.raises(SettingsError, match="fewer"):
        check_start(config)
    check_start(config, by_key=True)


@pytest.mark.slow
def test_brokers_that_are_away_do_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    """The start waits for them later; what the client itself refuses is reported at once."""
    caplog.set_level("INFO", "enricher.worker.kafka.precheck")
    topics = Topics("127.0.0.1:1", "in", "out", "dead", "group", {})
    check_start(config_for(topics))
    assert "after the model is loaded" in caplog.text
    with pytest.raises(SettingsError, match="made_up_property"):
        check_start(config_for(topics, properties={"made_up_property": "1"}))
    with pytest.raises(SettingsError, match="made_up_property"):
        check_start(config_for(topics, properties={"consumer.made_up_property": "1"}))
