"""Reads the headers of outputs that name their input (`schemas/`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from confluent_kafka import Message

STAGE = "enricher.dlq.stage"
OMITTED = "enricher.dlq.value.omitted_bytes"
_TOPIC_ID, _PARTITION, _OFFSET = "source.topic.id", "source.partition", "source.offset"


class InputId(NamedTuple):
    """Identifies an input. A recreated topic has another id, and the same partitions and offsets."""

    topic_id: str | None
    """It is None if the output does not name it."""
    partition: int
    offset: int


def headers_of(message: Message) -> dict[str, bytes]:
    """A message's headers by name; of several with one name the last wins."""
    return dict(cast("list[tuple[str, bytes]]", message.headers() or []))


def source_of(message: Message) -> InputId:
    """The input that an output was made from."""
    headers = headers_of(message)
    prefix = "enricher.dlq" if STAGE in headers else "enricher"
    topic_id = headers.get(f"{prefix}.{_TOPIC_ID}")
    return InputId(
        topic_id.decode() if topic_id else None,
        int(headers[f"{prefix}.{_PARTITION}"]),
        int(headers[f"{prefix}.{_OFFSET}"]),
    )
