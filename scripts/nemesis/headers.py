"""What the headers of an output say of its input (`schemas/`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from confluent_kafka import Message

STAGE = "enricher.dlq.stage"


def headers_of(message: Message) -> dict[str, bytes]:
    """By name; the last one of a name counts."""
    return dict(cast("list[tuple[str, bytes]]", message.headers() or []))


def source_of(message: Message) -> tuple[int, int]:
    """Partition and offset of the input."""
    headers = headers_of(message)
    prefix = "enricher.dlq.source" if STAGE in headers else "enricher.source"
    return int(headers[f"{prefix}.partition"]), int(headers[f"{prefix}.offset"])
