"""`WaitingDecoders`: commands wait for a schema once, and never for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from support.patience import PATIENCE_S
from support.schema_registry import Registry, serving, silent

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.articles.schemas import Decoder, Schema, SchemaRef
from enricher.worker.registry.decoders import Fetcher, RegistryDecoders, WaitingDecoders
from enricher.worker.registry.registry_client import RegistryClient

REFERENCE = SchemaRef("id", "7")


class Arrived(threading.Event):
    """An event that notes how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, and note for how long at most."""
        assert timeout is not None
        self.waited_s.append(timeout)
        return super().wait(timeout)


def text_of(schema: Schema, *, glue: bool) -> Decoder:
    """A decoder whose documents are the text of its schema."""
    assert not glue
    return lambda _: schema.text


@contextmanager
def waiting(registry: Registry, *, timeout_s: float) -> Iterator[tuple[WaitingDecoders, Arrived]]:
    """Decoders that ask this registry, and what tells them that something has arrived."""
    arrived = Arrived()
    client = RegistryClient(registry.url, {}, timeout_s=PATIENCE_S, max_schema_bytes=1_000)
    fetcher = Fetcher(client.schema, text_of, wake=arrived.set, unknown_wait_s=0.0)
    with closing(RegistryDecoders(fetcher)) as decoders:
        yield WaitingDecoders(decoders, arrived, timeout_s=timeout_s), arrived


def test_a_schema_that_arrives_is_waited_for() -> None:
    """The first record by it is read like every later one."""
    with (
        serving(Registry({"7": {"schema": "its text"}})) as registry,
        waiting(registry, timeout_s=PATIENCE_S) as (decoders, _),
    ):
        assert "its text" == decoders.decoder(REFERENCE)(b"")


def test_a_schema_that_cannot_be_used_is_not_waited_for_any_longer() -> None:
    """Its reason comes as soon as it is known."""
    with (
        serving() as registry,
        waiting(registry, timeout_s=PATIENCE_S) as (decoders, _),
        pytest.raises(InvalidArticle, match="unknown"),
    ):
        decoders.decoder(REFERENCE)


def test_after_one_wait_in_vain_later_records_do_not_wait() -> None:
    """Otherwise `tail` would show one record in ten seconds while the registry is away."""
    with (
        serving(Registry({"7": {"schema": "its text"}}, behaviour=silent)) as registry,
        waiting(registry, timeout_s=0.01) as (decoders, arrived),
    ):
        for _ in range(3):
            with pytest.raises(SchemaPending):
                decoders.decoder(REFERENCE)
        assert [True, False, False] == [waited_s > 0 for waited_s in arrived.waited_s]
        registry.behaviour = None
        registry.closing.set()  # ends the silence
        assert arrived.wait(PATIENCE_S)
        assert "its text" == decoders.decoder(REFERENCE)(b"")
