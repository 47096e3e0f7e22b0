"""Enriched records as Protobuf, by `schemas/enriched-record.v1.proto`. Imported only if records are written or shown so.

The schema has its own pool, so that it cannot clash with a message of the same name in this process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from enricher.worker.articles.formats.record_values import record_values
from enricher.worker.contracts import RECORD_MESSAGE, record_descriptors
from enricher.worker.records import EnrichedRecord


def _message_class() -> Any:  # noqa: ANN401  protobuf makes the class, and publishes no types
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(record_descriptors()).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(RECORD_MESSAGE))


_Message = _message_class()


def encode_protobuf(record: EnrichedRecord) -> bytes:
    """The record as Protobuf, without a prefix. Deterministic for one version of protobuf."""
    encoded: bytes = _Message(**record_values(record)).SerializeToString(deterministic=True)
    return encoded


def decode_protobuf(payload: bytes) -> dict[str, Any]:
    """The values of a record. Fields that the schema does not have are left out. Raises ValueError if it is not one."""
    try:
        message = _Message.FromString(payload)
    except DecodeError as error:
        raise ValueError("not a record in Protobuf") from error
    values: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return values
