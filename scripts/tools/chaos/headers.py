"""What the headers of an output say of its input (`schemas/`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from confluent_kafka import Message

STAGE = "enricher.dlq.stage"
OMITTED = "enricher.dlq.value.omitted_bytes"
_TOPIC_ID, _PARTITION, _OFFSET = "source.topic.id", "source.partition", "source.offset"


class Place(NamedTuple):
    """Where an input stood: a topic that is made again has another id, and the same partitions and offsets."""

    topic_id: str | None
    """None where the output does not say it."""
    partition: int
    offset: int


def headers_of(message: Message) -> dict[str, bytes]:
    """By name; the last one of a name counts."""
    return dict(cast("list[tuple[str, bytes]]", message.headers() or []))


def source_of(message: Message) -> Place:
    """Where the input of an output stood."""
    headers = headers_of(message)
    prefix = "enricher.dlq" if STAGE in headers else "enricher"
    topic_id = headers.get(f"{prefix}.{_TOPIC_ID}")
    return Place(
        topic_id.decode() if topic_id else None,
        int(headers[f"{prefix}.{_PARTITION}"]),
        int(headers[f"{prefix}.{_OFFSET}"]),
    )
