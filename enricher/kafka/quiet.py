"""Clients for commands. They log nothing and never recover: a command reports the broker's error once and exits.

The worker's own error mapping is in `errors`; its clients are created in `source` and `sink`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from enricher.errors import BrokerError, TransactionTrouble
from enricher.kafka.client import KafkaConfig
from enricher.kafka.client_errors import ClientErrors
from enricher.kafka.errors import Polled, constructing, mapping_errors


class Complaint(ClientErrors):
    """The client's last complaint, which is not logged: the command shows it with the error that it explains."""

    def say(self, text: str) -> None:
        """Log nothing."""


class ClientLog(logging.Handler):
    """Collects the log lines of one client instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.logger = logging.Logger("librdkafka", logging.DEBUG)  # noqa: LOG001  deliberately outside the logger tree
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(record.getMessage())


@contextmanager
def broker_errors(client: Polled, doing: str, complaint: Complaint) -> Iterator[None]:
    """Map the client's errors in the body to BrokerError (or another FatalError), with the reason behind them."""
    try:
        with mapping_errors(doing, complaint, client):
            yield
    except TransactionTrouble as error:
        raise BrokerError(str(error)) from error


def silenced(properties: Mapping[str, Any], complaint: Complaint) -> dict[str, Any]:
    """The properties, with `complaint` as error callback."""
    return {**properties, "error_cb": complaint}


def quiet_admin(
    config: KafkaConfig, complaint: Complaint, log: ClientLog | None = None, **properties: object
) -> AdminClient:
    """Raises SettingsError if librdkafka rejects the properties."""
    with constructing():
        everything = silenced(config.client("admin") | properties, complaint)
        return AdminClient(everything, logger=(log or ClientLog()).logger)


def quiet_consumer(config: KafkaConfig, complaint: Complaint, properties: Mapping[str, Any]) -> Consumer:
    """A consumer that never commits by itself. Raises SettingsError if librdkafka rejects the properties."""
    own = {"group.id": config.group_id, "enable.auto.commit": False, **properties}
    with constructing():
        return Consumer(silenced(config.client("consumer") | own, complaint), logger=ClientLog().logger)
