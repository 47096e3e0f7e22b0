"""The range of a replay, as its committed offsets say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import TopicPartition
from kafka.clients import config_for
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.operate.replay.pinning import Pinned, read_pinned
from enricher.worker.rules.commit_metadata import CommitMetadata

if TYPE_CHECKING:
    from enricher.operate.inspect.inspector import Inspector

RANGE = "beginning..end"


class Group:
    """The answers of a broker about the group: offset 3 of each of these partitions, of three in the range to offset 5."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def topic_id(self, _topic: str) -> str:
        """The id of the input topic."""
        return "id"

    def committed_offsets(self, topic: str) -> list[TopicPartition]:
        """The committed offsets, with what a replay writes beside them."""
        metadata = CommitMetadata("id", began_with=3, replay=RANGE, until=5).encode()
        return [TopicPartition(topic, number, 3, metadata=metadata) for number in self._numbers]


def pinned_of(*numbers: int) -> Pinned | None:
    """What is read of a group that has offsets of these partitions."""
    topics = Topics("nowhere:9092", "in", "out", "letters", "group", {})
    return read_pinned(cast("Inspector", Group(*numbers)), config_for(topics, replay=RANGE))


def test_a_group_that_has_lost_offsets_of_its_range_is_refused() -> None:
    """Without them nobody knows what is left, and the replay would end as if all of it were done."""
    whole = pinned_of(0, 1, 2)
    assert whole is not None
    assert 6 == whole.left
    with pytest.raises(BrokerError, match="has lost its offsets for the partitions 0, 2 of 'in'"):
        pinned_of(1)


def test_a_group_without_offsets_has_not_begun() -> None:
    """None, not an empty range."""
    assert pinned_of() is None
