"""Decoders for commands, which may wait for a schema; the loop may not, so it uses those of `registry` as they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from enricher.app.registry import registry_decoders
from enricher.codec.schemas import Decoder, Decoders, SchemaRef
from enricher.errors import SchemaPending
from enricher.settings import Settings

_MAX_LATE = 10_000
"""A schema beyond these is waited for again."""


class Settling(Decoders, Protocol):
    """What is needed of `RegistryDecoders`."""

    def settled(self) -> object:
        """Take in what has arrived. Does not block."""


class WaitingDecoders:
    """Waits for each schema once, for at most `timeout_s`; later records do not wait for one that has not come by then.

    `arrived` is set, by any thread, when `decoders` may have something new.
    """

    def __init__(self, decoders: Settling, arrived: threading.Event, *, timeout_s: float) -> None:
        self._decoders = decoders
        self._arrived = arrived
        self._timeout_s = timeout_s
        self._late: set[SchemaRef] = set()

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Blocks. Raises InvalidArticle, or SchemaPending after the time."""
        give_up_s = time.monotonic() + (0.0 if reference in self._late else self._timeout_s)
        while True:
            self._arrived.clear()
            self._decoders.settled()
            try:
                return self._decoders.decoder(reference)
            except SchemaPending:
                if not self._arrived.wait(max(0.0, give_up_s - time.monotonic())):
                    if len(self._late) >= _MAX_LATE:
                        self._late.pop()
                    self._late.add(reference)
                    raise


@contextmanager
def waiting_decoders(settings: Settings) -> Iterator[Decoders | None]:
    """The decoders of records that name a schema; None if the settings read none. Raises SettingsError."""
    arrived = threading.Event()
    decoders = registry_decoders(settings, wake=arrived.set)
    if decoders is None:
        yield None
        return
    with closing(decoders):
        # As long as the fetcher's first request may take, and a little for the decoder.
        yield WaitingDecoders(decoders, arrived, timeout_s=settings.registry.timeout_s + 1.0)
