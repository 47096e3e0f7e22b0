"""Settings -> the writer of records, and how it gets the id of its schema at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable

from enricher.errors import TransactionTrouble
from enricher.worker.articles import RecordWriter, record_writer
from enricher.worker.settings import Settings

log = logging.getLogger(__name__)


def writer_of(settings: Settings) -> tuple[RecordWriter, Callable[[], None]]:
    """The writer of records, and a function that must be called before it writes. Raises SettingsError.

    That function blocks while it asks the registry, and does nothing once it has succeeded. It raises TransactionTrouble,
    after which it may be called again, and BrokerError if the schema of records is not registered.
    """
    writer = record_writer(settings.output.format)
    if writer.schema is None:
        return writer, lambda: None
    # Imported here, because its packages belong to an extra that only these formats need.
    from enricher.worker.build.schema_registry import registry_client, schema_store  # noqa: PLC0415  see above
    from enricher.worker.registry.record_schema import RecordSchema  # noqa: PLC0415  see above

    schema = RecordSchema(subject_of(settings), writer.schema, registry_client(settings), schema_store(settings))

    def prepare() -> None:
        if not writer.ready:
            writer.begin_with(schema.find_id())

    return writer, prepare


def subject_of(settings: Settings) -> str:
    """The subject of the schema of records."""
    return settings.output.subject or f"{settings.kafka.output_topic}-value"


def check_record_schema(settings: Settings) -> None:
    """Raise BrokerError if the schema of records is not registered, before the model is loaded, which takes longer.

    Returns if the registry does not answer: the start itself waits for it.
    """
    _, prepare = writer_of(settings)
    try:
        prepare()
    except TransactionTrouble as trouble:
        log.info("the schema of records is looked up after the model is loaded: %s", trouble)
