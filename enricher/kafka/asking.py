"""How the commands talk to the broker: they never recover, they say what the broker said and end.

For short visits only. The worker's own border is `border`; its clients are made in `source` and `sink`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from enricher.errors import BrokerError, TransactionTrouble
from enricher.kafka.client import LastWord
from enricher.kafka.errors import Polled, border


class Complaint(LastWord):
    """A last word that is not logged: the command shows it once, where it belongs."""

    def say(self, text: str) -> None:
        """Keep it to itself."""


class ClientLog(logging.Handler):
    """A logger of one client's own: nothing reaches the terminal, its lines can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.logger = logging.Logger("librdkafka", logging.DEBUG)  # noqa: LOG001  on purpose outside of the tree
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(record.getMessage())


@contextmanager
def asking(client: Polled, doing: str, complaint: Complaint) -> Iterator[None]:
    """Map what the client raises in the body to BrokerError (or another FatalError), with the reason behind it."""
    try:
        with border(doing, complaint, client):
            yield
    except TransactionTrouble as error:
        raise BrokerError(str(error)) from error


def silenced(properties: Mapping[str, Any], complaint: Complaint) -> dict[str, Any]:
    """The properties with `complaint` in place."""
    return {**properties, "error_cb": complaint}
