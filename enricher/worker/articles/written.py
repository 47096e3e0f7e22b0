"""Reads written records again, for people and tests: the value of a record in any format that we write -> JSON."""

from __future__ import annotations

from enricher.errors import SettingsError
from enricher.worker.articles.formats.record_values import json_of
from enricher.worker.articles.framing import FIRST_MESSAGE, ID_MAGIC, ID_PREFIX_BYTES
from enricher.worker.articles.writers import CONTENT_TYPES


def record_as_json(value: bytes, content_type: bytes | None) -> bytes:
    """The JSON of a record's value. `content_type`: the header; plain JSON without it.

    Raises ValueError if the value is not a record in that format, and SettingsError if the packages for it are missing.
    """
    if value[:1] != ID_MAGIC:
        return value
    payload = value[ID_PREFIX_BYTES:]
    try:
        # Imported here, because these formats need the packages of an extra.
        if content_type == CONTENT_TYPES["avro"]:
            from enricher.worker.articles.formats.avro_records import decode_avro  # noqa: PLC0415  see above

            return json_of(decode_avro(payload))
        if content_type == CONTENT_TYPES["protobuf"]:
            from enricher.worker.articles.formats.protobuf_records import decode_protobuf  # noqa: PLC0415  see above

            return json_of(decode_protobuf(_message(payload)))
    except ImportError as error:
        message = f"records in this format need more packages ({error}): pip install '.[registry]'"
        raise SettingsError(message) from error
    return payload


def _message(payload: bytes) -> bytes:
    if not payload.startswith(FIRST_MESSAGE):
        raise ValueError("not the first message of the schema")
    return payload[len(FIRST_MESSAGE) :]
