"""A partition without a leader: nobody knows its backlog, and no worker is sent home for it."""

from __future__ import annotations

from contextlib import closing
from itertools import chain, repeat

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka.clients import config_for
from support.administrator import Administrator
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.scaling.reading import BacklogReader, _Patience

TOPICS = Topics("localhost:9092", "news", "news.entities", "news.dead-letters", "enricher", {})


def ends_of(monkeypatch: pytest.MonkeyPatch, *offsets: int, timeout_s: float) -> dict[int, int]:
    """What the reader takes for the end of one partition; the last answer stays."""
    with closing(BacklogReader(config_for(TOPICS))) as reader:
        monkeypatch.setattr(reader, "_admin", Administrator(chain(offsets, repeat(offsets[-1]))))
        patience = _Patience(timeout_s, reader._asking)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
        return reader._offsets([TopicPartition("news", 0)], latest, patience, IsolationLevel.READ_COMMITTED)


def test_it_is_asked_again_until_there_is_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election takes a moment."""
    assert ends_of(monkeypatch, OFFSET_INVALID, 7, timeout_s=60) == {0: 7}


def test_where_none_comes_it_is_the_broker_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for empty, the partition would have no backlog, and its workers would be taken away."""
    with pytest.raises(BrokerError, match="no answer from partitions 0"):
        ends_of(monkeypatch, OFFSET_INVALID, timeout_s=0.1)
