"""The compatibility levels of a subject: what each one means, and which one the schema of records needs.

The registry alone judges whether a change is compatible. What our formats promise beyond that is a test
(`tests/schemas/test_released_schemas.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from enricher.worker.contracts import SchemaType

Level = Literal["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"]

_MEANINGS: Mapping[str, str] = {
    "BACKWARD": "readers with the new schema can read what was written with the old one",
    "FORWARD": "readers with the old schema can read what is written with the new one",
    "FULL": "readers with either schema can read what is written with the other one",
    "NONE": "every change is allowed",
}
_RECOMMENDED: Mapping[SchemaType, Level] = {
    # A new optional field has a default: old and new readers read both.
    "AVRO": "FULL_TRANSITIVE",
    # FORWARD and FULL would refuse a new field whose message type is new too.
    "PROTOBUF": "BACKWARD_TRANSITIVE",
    # BACKWARD and FULL refuse every new property of an object that allows unknown ones: older data may have used its name
    # for something else. Nothing but the worker writes records, so there is no such data.
    "JSON": "FORWARD_TRANSITIVE",
}


def describe_level(level: str) -> str | None:
    """The meaning of a level in one sentence; None for an unknown level."""
    return _MEANINGS.get(level.removesuffix("_TRANSITIVE"))


def recommended_level(schema_type: SchemaType) -> Level:
    """The level for the subject of records that allows new optional fields and refuses breaking changes."""
    return _RECOMMENDED[schema_type]
