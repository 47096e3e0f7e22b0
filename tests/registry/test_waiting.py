"""Articles wait for schemas in the intake, with a real registry over HTTP and real threads; commands wait once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from loop.fake_model import AFTER, BEFORE, LABELS, article_value, read, tokenize
from loop.world import RULES
from support.patience import PATIENCE_S
from support.schema_registry import Registry, serving, silent

from enricher.errors import InvalidArticle, SchemaPending, SettingsError
from enricher.worker.articles import serialise_findings
from enricher.worker.articles.schemas import Decoder, Schema, SchemaRef
from enricher.worker.heads import EntityHead
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.records import Article, DeadLetter, Partition, RawRecord, Ticket
from enricher.worker.registry.decoders import Fetcher, RegistryDecoders, WaitingDecoders
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.windowing import WindowCutter
from enricher.worker.runtime.deadlines import Wakeup
from enricher.worker.settings import ArticleSettings, OutputSettings, RegistrySettings, Settings
from enricher.worker.wiring.formats import check_formats, registry_decoders

LONG_S = 60.0
TEXT: dict[str, object] = {"schema": '"string"'}


def settings(url: str, cache: Path, **more: object) -> Settings:
    """Settings of a worker that reads what names a schema."""
    registry = RegistrySettings(url=url, cache_dir=cache, unknown_wait_s=0.05).model_copy(update=more)
    return Settings(articles=ArticleSettings(format="registry"), registry=registry)


def compiled(_schema: Schema) -> Decoder:
    """Every payload is its own document."""
    return lambda payload: payload


@contextmanager
def intake_of(chosen: Settings) -> Iterator[tuple[Intake, Wakeup]]:
    """An intake whose records are `ID payload`."""
    wakeup = Wakeup()
    decoders = registry_decoders(chosen, wake=wakeup.set, compile_schema=compiled)
    assert decoders is not None

    def read_by_schema(raw: RawRecord) -> Article:
        name, _, payload = (raw.value or b"").partition(b" ")
        document = decoders.decoder(SchemaRef("id", name.decode()))(payload)
        return read(RawRecord(raw.partition, raw.offset, raw.key, document))

    intake = Intake(
        read=read_by_schema,
        tokenizer=WorkerPool(tokenize, threads=1, waiting=1, wake=wakeup.set, name="tokenizer"),
        cutter=WindowCutter(10, 4, BEFORE, AFTER),
        scheduler=LengthBucketScheduler(RULES),
        heads=(EntityHead.of(LABELS),),
        keep=serialise_findings,
        chars_per_call=1_024,
        clock=time.monotonic,
        schemas=decoders,
    )
    try:
        yield intake, wakeup
    finally:
        intake.close()


def tickets(*names: str) -> list[Ticket]:
    """One for each id."""
    values = [name.encode() + b" " + article_value("title", "and a body") for name in names]
    return [Ticket(RawRecord(Partition("t", 0), offset, None, value), 0.0) for offset, value in enumerate(values)]


def turn(intake: Intake, wakeup: Wakeup, done: list[Ticket]) -> None:
    """Turn as the loop does until all of `done` are tokenized or finished."""
    give_up_s = time.monotonic() + LONG_S
    while intake.busy or not all(each.article or each.outcome for each in done):
        assert time.monotonic() < give_up_s, "stuck"
        wakeup.clear()
        resumed = intake.resume_answered()
        if not intake.advance(time.monotonic(), lambda _: True) and not resumed:
            wakeup.wait(0.25)


@pytest.mark.slow
def test_an_outage_delays_and_an_unknown_id_is_refused(tmp_path: Path) -> None:
    """While the registry hangs, what is known goes on; when it answers, everything does, with one request for each id."""
    with (
        serving(Registry({"1": TEXT, "2": TEXT})) as registry,
        intake_of(settings(registry.url, tmp_path)) as (at, wakeup),
    ):
        at.take(first := tickets("1"))
        turn(at, wakeup, first)
        registry.behaviour = silent
        known, waiting, unknown = tickets(*["1"] * 50), tickets(*["2"] * 100), tickets("404")
        at.take([*waiting, *known, *unknown])
        turn(at, wakeup, known)
        assert (101, False) == (at.waiting_articles, at.busy)
        assert [None] * 101 == [each.outcome for each in waiting + unknown]
        registry.behaviour = None
        turn(at, wakeup, waiting + unknown)
        assert 0 == at.waiting_articles
    assert 1 + 50 + 100 == at.scheduler.queued_windows
    outcome = unknown[0].outcome
    assert isinstance(outcome, DeadLetter)
    assert ("decode", "InvalidArticle", "schema id 404 is unknown: Schema 404 not found") == (
        outcome.stage,
        outcome.error_type,
        outcome.message,
    )


@pytest.mark.parametrize(
    ("chosen", "about"),
    [
        (settings("http://x:port", Path("/tmp")), "port"),
        (settings("http://x", Path("/tmp"), properties={"no.such": 5}), "no.such"),
        (Settings(output=OutputSettings(format="avro"), registry=RegistrySettings(url="http://")), "name a host"),
    ],
)
def test_settings_that_cannot_be_right_are_refused_at_the_start(chosen: Settings, about: str) -> None:
    """Without a connection."""
    with pytest.raises(SettingsError, match=about):
        check_formats(chosen)


def test_without_these_settings_there_is_no_registry() -> None:
    """Neither a check nor a thread."""
    check_formats(Settings())
    assert registry_decoders(Settings(), wake=lambda: None) is None


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


def text_of(schema: Schema) -> Decoder:
    """A decoder whose documents are the text of its schema."""
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
