"""What only some brokers answer, or only at a bad moment: no leader, so no offset, and no topic id."""

from __future__ import annotations

from contextlib import closing
from itertools import chain, repeat

import pytest
from confluent_kafka import OFFSET_INVALID
from kafka.clients import config_for
from support.administrator import Administrator
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.verify.cluster import Cluster

TOPICS = Topics("localhost:9092", "news", "news.entities", "news.dead-letters", "enricher", {})


def cluster_of(monkeypatch: pytest.MonkeyPatch, *offsets: int, request_timeout_s: float) -> Cluster:
    """One partition, whose end is asked for; the last answer stays."""
    cluster = Cluster(config_for(TOPICS, request_timeout_s=request_timeout_s))
    monkeypatch.setattr(cluster, "partitions", lambda _topic: [0])
    monkeypatch.setattr(cluster, "_admin", Administrator(chain(offsets, repeat(offsets[-1]))))
    return cluster


def test_it_is_asked_again_until_there_is_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election takes a moment."""
    with closing(cluster_of(monkeypatch, OFFSET_INVALID, OFFSET_INVALID, 7, request_timeout_s=60)) as cluster:
        assert cluster.ends("news", committed_only=True) == {0: 7}


def test_a_broker_without_topic_ids_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.8 the id is all zeros, for every topic: taken for an id, it would make all topics one."""
    with closing(cluster_of(monkeypatch, 0, request_timeout_s=60)) as cluster:
        assert cluster.topic_id("news") is None


def test_where_none_comes_it_is_the_broker_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for empty, the partition would have lost all its records, or invented them."""
    with (
        closing(cluster_of(monkeypatch, OFFSET_INVALID, request_timeout_s=0.1)) as cluster,
        pytest.raises(BrokerError, match=r"LEADER_NOT_AVAILABLE.*no answer from partitions 0"),
    ):
        cluster.ends("news", committed_only=True)
