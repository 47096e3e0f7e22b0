"""What our formats promise, and the level that a registry must have so that the promise can be kept.

`schemas/README.md` says why, for people.
"""

from __future__ import annotations

from enricher.contracts import SchemaType
from enricher.registry.compatibility.levels import Level

_RECOMMENDED: dict[SchemaType, Level] = {
    # A new optional field has a default: old and new readers read both.
    "AVRO": Level.FULL_TRANSITIVE,
    # FORWARD and FULL would refuse a new field whose message type is new too.
    "PROTOBUF": Level.BACKWARD_TRANSITIVE,
    # BACKWARD and FULL refuse every new property of an object that allows unknown ones: older data may have used its name
    # for something else. Nothing but the worker writes records, so there is no such data.
    "JSON": Level.FORWARD_TRANSITIVE,
}
_ARTICLE = '"urn:enricher:schema:article:'


def recommended_level(schema_type: SchemaType) -> Level:
    """The level to set for the subject of records, so that optional fields may come and breaking changes are refused."""
    return _RECOMMENDED[schema_type]


def promised_level(text: str) -> Level:
    """What we promise for this schema. The publishers write articles, so every later worker must accept what one accepted.

    A typed new field of an article would refuse articles that have had another type under its name: there is no exception.
    """
    return Level.BACKWARD_TRANSITIVE if _ARTICLE in text else Level.PROMISE
