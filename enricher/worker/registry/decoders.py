"""Decoders by the references of their schemas. Those that are not here are requested from the fetcher.

The loop never waits for a decoder, so it uses `RegistryDecoders`; commands may wait (`WaitingDecoders`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.articles.schemas import Decoder, SchemaRef
from enricher.worker.registry.fetcher import Answer, Fetcher
from enricher.worker.stats.snapshot import SchemaState

MAX_DECODERS = 1_000
MAX_DECODER_BYTES = 200_000_000
"""Memory of all decoders by `Schema.decoder_bytes`: 500 ordinary Protobuf schemas of 5 kB, or 1,000 Avro schemas of 8 kB."""
MAX_REFUSALS = 20_000

_MAX_LATE = 10_000
"""The number of late schemas that are remembered; one that is forgotten is waited for again."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    message: str
    until_s: float


class RegistryDecoders:
    """Implements `articles.schemas.Decoders` and `loop.ports.Schemas`. Closes its fetcher."""

    def __init__(self, fetcher: Fetcher, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._ready: OrderedDict[SchemaRef, tuple[Decoder, int]] = OrderedDict()
        """Decoders with their bytes, the least recently used first."""
        self._ready_bytes = 0
        self._refused: OrderedDict[SchemaRef, _Refusal] = OrderedDict()
        """The oldest first."""

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Does not block. Raises SchemaPending or InvalidArticle."""
        if ready := self._ready.get(reference):
            self._ready.move_to_end(reference)
            return ready[0]
        if refusal := self._refused.get(reference):
            if self._clock() < refusal.until_s:
                raise InvalidArticle(refusal.message)
            del self._refused[reference]
        self._fetcher.ask(reference)
        raise SchemaPending(reference)

    def take_answered(self) -> Collection[SchemaRef]:
        """Schemas that were fetched or refused since the last call: read their records again. Does not block."""
        answers = self._fetcher.answers()
        for answer in answers:
            if isinstance(answer.result, InvalidArticle):
                self._refused[answer.reference] = _Refusal(str(answer.result), self._clock() + answer.counts_s)
                if len(self._refused) > MAX_REFUSALS:
                    self._refused.popitem(last=False)
            else:
                self._keep(answer, answer.result)
        return [answer.reference for answer in answers]

    def abandon(self, references: Collection[SchemaRef]) -> None:
        """No record waits for these any more."""
        self._fetcher.drop(references)

    def state(self) -> SchemaState:
        """The state for telemetry. Safe in any thread."""
        return self._fetcher.state()

    def close(self) -> None:
        """End the fetcher. Blocks within its bound."""
        self._fetcher.close()

    def _keep(self, answer: Answer, decoder: Decoder) -> None:
        _, replaced_bytes = self._ready.pop(answer.reference, (None, 0))
        self._ready[answer.reference] = decoder, answer.size_bytes
        self._ready_bytes += answer.size_bytes - replaced_bytes
        while len(self._ready) > MAX_DECODERS or (self._ready_bytes > MAX_DECODER_BYTES and len(self._ready) > 1):
            _, (_, oldest_bytes) = self._ready.popitem(last=False)
            self._ready_bytes -= oldest_bytes


class WaitingDecoders:
    """Waits for each schema once, for at most `timeout_s`; later records do not wait for one that has not come by then.

    `arrived` is set, by any thread, when `decoders` may have something new.
    """

    def __init__(self, decoders: RegistryDecoders, arrived: threading.Event, *, timeout_s: float) -> None:
        self._decoders = decoders
        self._arrived = arrived
        self._timeout_s = timeout_s
        self._late: set[SchemaRef] = set()

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Blocks. Raises InvalidArticle, or SchemaPending after `timeout_s`."""
        give_up_s = time.monotonic() + (0.0 if reference in self._late else self._timeout_s)
        while True:
            self._arrived.clear()
            self._decoders.take_answered()
            try:
                return self._decoders.decoder(reference)
            except SchemaPending:
                if not self._arrived.wait(max(0.0, give_up_s - time.monotonic())):
                    if len(self._late) >= _MAX_LATE:
                        self._late.pop()
                    self._late.add(reference)
                    raise
