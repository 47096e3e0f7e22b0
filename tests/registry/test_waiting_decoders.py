"""`WaitingDecoders`: commands wait for a schema once, and never for long."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from enricher.app.waiting_decoders import WaitingDecoders
from enricher.codec.schemas import Decoder, SchemaRef
from enricher.errors import InvalidArticle, SchemaPending

REFERENCE = SchemaRef("id", "7")


@dataclass
class FakeDecoders:
    """Decoders that have one only after something has arrived and was taken in."""

    arrived: threading.Event = field(default_factory=threading.Event)
    coming: dict[SchemaRef, Decoder | InvalidArticle] = field(default_factory=dict)
    here: dict[SchemaRef, Decoder | InvalidArticle] = field(default_factory=dict)
    asked: int = 0

    def settled(self) -> object:
        """Take in what has arrived."""
        self.here |= self.coming
        return ()

    def decoder(self, reference: SchemaRef) -> Decoder:
        """Find a decoder."""
        self.asked += 1
        found = self.here.get(reference)
        if found is None:
            raise SchemaPending(reference)
        if isinstance(found, InvalidArticle):
            raise found
        return found


def later(fake: FakeDecoders, result: Decoder | InvalidArticle) -> threading.Thread:
    """Let a thread fetch the schema, as the fetcher does."""

    def fetch() -> None:
        fake.coming[REFERENCE] = result
        fake.arrived.set()

    return threading.Thread(target=fetch)


def test_a_schema_that_arrives_is_waited_for() -> None:
    """The first record by it is read like every later one."""
    fake, decode = FakeDecoders(), bytes.decode
    fetching = later(fake, decode)
    fetching.start()
    assert decode is WaitingDecoders(fake, fake.arrived, timeout_s=60).decoder(REFERENCE)
    fetching.join()


def test_a_schema_that_cannot_be_used_is_not_waited_for_any_longer() -> None:
    """Its reason comes as soon as it is known."""
    fake = FakeDecoders()
    fetching = later(fake, InvalidArticle("schema id 7 is unknown to the registry"))
    fetching.start()
    with pytest.raises(InvalidArticle, match="unknown"):
        WaitingDecoders(fake, fake.arrived, timeout_s=60).decoder(REFERENCE)
    fetching.join()


def test_after_one_wait_in_vain_later_records_do_not_wait() -> None:
    """Otherwise `tail` would show one record in ten seconds while the registry is away."""
    fake = FakeDecoders()
    decoders = WaitingDecoders(fake, fake.arrived, timeout_s=0.0)
    for _ in range(2):
        with pytest.raises(SchemaPending):
            decoders.decoder(REFERENCE)
    decoders._timeout_s = 3600
    with pytest.raises(SchemaPending):
        decoders.decoder(REFERENCE)
    later(fake, bytes.decode).run()
    assert bytes.decode is decoders.decoder(REFERENCE)
