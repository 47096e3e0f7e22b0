"""Decoders against a real HTTP server: what is answered, what waits, what goes on by itself, and what survives a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE_S, wait_until
from support.schema_registry import Behaviour, Registry, hang_up, registry_error, serving, silent, status

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.articles.schemas import Decoder, Schema, SchemaRef
from enricher.worker.registry import decoders as decoders_module
from enricher.worker.registry.decoders import Fetcher, RegistryDecoders, WaitingDecoders
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.store import SchemaPlaces, SchemaStore
from tools.ports import free_ports

TEXT: dict[str, object] = {"schema": '"string"'}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders_module, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(decoders_module, "LONGEST_PAUSE_S", 0.1)


def ref(number: int | str) -> SchemaRef:
    """A reference."""
    return SchemaRef("id", str(number))


TROUBLE: list[Exception] = []
"""What compiling a schema with `trouble` in it raises, the last first."""


def compiled(schema: Schema) -> Decoder:
    """A decoder that returns its schema; texts may ask for trouble."""
    if "refuse" in schema.text:
        raise InvalidArticle("it is not a record")
    if "crash" in schema.text:
        raise RecursionError
    if TROUBLE and "trouble" in schema.text:
        raise TROUBLE.pop()
    return lambda _payload: schema.text


class Desk:
    """The loop's side: asks for decoders, waits for the wakeup, counts it."""

    def __init__(self, url: str, folder: Path, *, timeout_s: float = PATIENCE_S, unknown_wait_s: float = 0.05) -> None:
        self.woken = threading.Event()
        self.now_s = 0.0
        client = RegistryClient(url, {}, timeout_s=timeout_s, max_schema_bytes=10_000)
        places = SchemaPlaces(client, SchemaStore(folder, url))
        fetcher = Fetcher(places.find, compiled, wake=self.woken.set, unknown_wait_s=unknown_wait_s)
        self.decoders = RegistryDecoders(fetcher, clock=lambda: self.now_s)

    def try_(self, reference: SchemaRef) -> object:
        """What the schema says; `...` while it is pending; the reason if it cannot be used."""
        try:
            return self.decoders.decoder(reference)(b"")
        except SchemaPending as pending:
            return ... if pending.reference == reference else pending
        except InvalidArticle as error:
            return str(error)

    def get(self, reference: SchemaRef) -> object:
        """The same, after waiting for it."""
        answer = self.try_(reference)
        while answer is ...:
            self.wait_for(reference)
            answer = self.try_(reference)
        return answer

    def wait_for(self, reference: SchemaRef) -> None:
        """Wait until this is answered."""
        until_s = time.monotonic() + PATIENCE_S
        while reference not in self.decoders.take_answered():
            assert time.monotonic() < until_s, "never answered"
            self.woken.wait(0.05)
            self.woken.clear()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something."""
        wait_until(holds, PATIENCE_S, "what the fetcher's thread does", 0.005)


@contextmanager
def desk(registry: Registry, folder: Path, **options: Any) -> Iterator[Desk]:  # noqa: ANN401  as `Desk` takes
    """A desk, closed afterwards."""
    opened = Desk(registry.url, folder, **options)
    try:
        yield opened
    finally:
        opened.decoders.close()


def test_a_schema_is_fetched_once_however_many_records_wait(tmp_path: Path) -> None:
    """And then it is here at once."""
    with serving(Registry({"7": TEXT})) as registry, desk(registry, tmp_path) as at:
        assert {...} == {at.try_(ref(7)) for _ in range(1_000)}
        assert '"string"' == at.get(ref(7))
        assert '"string"' == at.try_(ref(7))
        assert ["7"] == registry.asked
        assert {"found": 1} == at.decoders.state().requests


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [status(401), status(200), silent, hang_up])
def test_a_registry_that_gives_no_answer_is_asked_until_it_does(behaviour: Behaviour, tmp_path: Path) -> None:
    """Nothing is answered meanwhile; the state says for how long; then everything goes on by itself."""
    with (
        serving(Registry({"7": TEXT}, behaviour=behaviour)) as registry,
        desk(registry, tmp_path, timeout_s=0.3) as at,
    ):
        assert ... is at.try_(ref(7))
        at.until(lambda: at.decoders.state().requests.get("unavailable", 0) >= 3)
        assert at.decoders.state().away_s > 0
        assert [] == list(at.decoders.take_answered())
        registry.behaviour = None
        assert '"string"' == at.get(ref(7))
        assert (0.0, 0) == (at.decoders.state().away_s, at.decoders.state().wanted)


def test_the_copy_on_disk_counts_only_while_the_registry_is_away(tmp_path: Path) -> None:
    """A registry that was emptied and filled again is believed at the next start."""
    [port] = free_ports(1)
    with serving(Registry({"7": TEXT}), port=port) as registry:
        with desk(registry, tmp_path) as at:
            at.get(ref(7))
        registry.schemas["7"] = {"schema": '"int"'}
        with desk(registry, tmp_path) as at:
            assert '"int"' == at.get(ref(7))
    with desk(registry, tmp_path) as at:
        assert '"int"' == at.get(ref(7))


def test_whatever_makes_a_schema_unusable_concerns_its_records_only(tmp_path: Path) -> None:
    """Too large, refused by the compiler, or fatal to it."""
    schemas: dict[str, dict[str, object]] = {"1": {"schema": "refuse"}, "2": {"schema": "crash"}, "7": TEXT}
    schemas["3"] = {"schema": "x" * 10_001}
    with serving(Registry(schemas)) as registry, desk(registry, tmp_path) as at:
        assert "schema id 1 cannot be used: it is not a record" == at.get(ref(1))
        assert "schema id 2 cannot be used: RecursionError" == at.get(ref(2))
        assert "more than 10,000 bytes" in str(at.get(ref(3)))
        assert '"string"' == at.get(ref(7))


@pytest.mark.parametrize(
    "trouble", [BlockingIOError(11, "no process"), OSError(28, "no space"), MemoryError()], ids=repr
)
@pytest.mark.parametrize("kept", [False, True])
def test_trouble_of_this_machine_is_waited_for(tmp_path: Path, trouble: Exception, kept: bool) -> None:  # noqa: FBT001
    """The schema is good, so its articles must not become dead letters."""
    with serving(Registry({"7": {"schema": "trouble"}})) as registry:
        if kept:
            with desk(registry, tmp_path) as at:
                assert "trouble" == at.get(ref(7))
        TROUBLE[:] = [trouble]
        with desk(registry, tmp_path) as at:
            assert "trouble" == at.get(ref(7))
    assert not TROUBLE


def test_a_schema_that_takes_the_compiler_too_long_twice_is_refused(tmp_path: Path) -> None:
    """Once, the machine may be busy; twice, it is the schema."""
    with serving(Registry({"7": {"schema": "trouble"}})) as registry, desk(registry, tmp_path) as at:
        TROUBLE[:] = [TimeoutError("too slow")]
        assert "trouble" == at.get(ref(7))
    with serving(Registry({"8": {"schema": "trouble"}})) as registry, desk(registry, tmp_path) as at:
        TROUBLE[:] = [TimeoutError("too slow"), TimeoutError("too slow")]
        assert "schema id 8 cannot be used: too slow" == at.get(ref(8))


def test_an_unknown_id_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After that the first answer counts, until it is found or forgotten. In between nobody asks the registry again."""
    with serving() as registry, desk(registry, tmp_path) as at:
        for asked in (2, 3):
            assert at.get(ref(404)) == "schema id 404 is unknown: Schema 404 not found"
            assert "unknown" in str(at.get(ref(404)))
            assert asked == len(registry.asked)
            at.now_s += decoders_module.UNKNOWN_S
        monkeypatch.setattr(decoders_module, "REMEMBERED_S", 0.0)
        at.get(ref(404))
        assert 5 == len(registry.asked)
        registry.schemas["404"] = TEXT
        at.now_s += decoders_module.UNKNOWN_S
        assert '"string"' == at.get(ref(404))


def test_of_a_flood_of_unknown_ids_only_the_first_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record may name another one, so a partition would otherwise stand still for each of them."""
    monkeypatch.setattr(decoders_module, "MOST_IN_VAIN", 2)
    with serving(Registry({"7": TEXT})) as registry, desk(registry, tmp_path) as at:
        for number in range(100, 120):
            assert "unknown" in str(at.get(ref(number)))
        assert 2 * 2 + 18 == len(registry.asked)
        assert '"string"' == at.get(ref(7))


def test_ids_that_come_late_count_against_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were not waited for in vain."""
    monkeypatch.setattr(decoders_module, "MOST_IN_VAIN", 1)
    with serving() as registry, desk(registry, tmp_path, unknown_wait_s=PATIENCE_S) as at:
        for number in range(3):
            assert ... is at.try_(ref(number))
            at.until(lambda number=number: str(number) in registry.asked)  # type: ignore[misc]
            registry.schemas[str(number)] = TEXT
            assert '"string"' == at.get(ref(number))


FORBIDDEN = registry_error(403, 40301, "User is denied operation Read on Subject")


@pytest.mark.parametrize("behaviour", [lambda _: FORBIDDEN, status(500)])
@pytest.mark.parametrize("reference", [ref(5), SchemaRef("guid", "89791762-2336-4186-9674-299b90a802e2")])
def test_an_id_is_refused_if_the_registry_fails_on_it_alone(
    tmp_path: Path, behaviour: Behaviour, reference: SchemaRef
) -> None:
    """The writer of a record chooses the id, so it must not hold its partition for ever."""
    registry = Registry(behaviour=behaviour, only=reference.name)
    with serving(registry), desk(registry, tmp_path) as at:
        reason = str(at.get(reference))
        assert "although it answers about other ids" in reason
        if behaviour(None) == FORBIDDEN:  # type: ignore[arg-type]
            assert "User is denied operation Read on Subject" in reason
        assert (0, 0.0) == (at.decoders.state().wanted, at.decoders.state().away_s)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [status(403), hang_up])
def test_while_the_registry_answers_about_no_id_none_is_refused(tmp_path: Path, behaviour: Behaviour) -> None:
    """Not even if it answers other questions, as one does that has lost its storage."""
    registry = Registry({"7": TEXT}, behaviour=behaviour, only_path="/schemas/ids/")
    with serving(registry), desk(registry, tmp_path, unknown_wait_s=0.0) as at:
        assert ... is at.try_(ref(7))
        at.until(lambda: at.decoders.state().requests.get("unavailable", 0) >= 10)
        assert [] == list(at.decoders.take_answered())
        registry.behaviour = None
        assert '"string"' == at.get(ref(7))


@pytest.mark.slow
def test_an_id_is_not_refused_for_a_limit_of_requests(tmp_path: Path) -> None:
    """A gateway that refuses most requests refuses some ids each time that they are asked for, while others get through."""
    registry = Registry({"7": TEXT, "8": TEXT}, behaviour=status(429), only="7")
    with serving(registry), desk(registry, tmp_path, unknown_wait_s=0.0) as at:
        assert ... is at.try_(ref(7))
        at.until(lambda: at.decoders.state().requests.get("unavailable", 0) >= 10)
        assert '"string"' == at.get(ref(8))
        assert [] == list(at.decoders.take_answered())
        registry.behaviour = None
        assert '"string"' == at.get(ref(7))


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by bytes; what was dropped is fetched again, from disk."""
    monkeypatch.setattr(decoders_module, "MAX_DECODERS", 3)
    monkeypatch.setattr(decoders_module, "MAX_REFUSALS", 2)
    with serving(Registry({str(n): TEXT for n in range(6)})) as registry, desk(registry, tmp_path) as at:

        def remembered(numbers: range) -> list[int]:
            return [number for number in numbers if at.try_(ref(number)) is not ...]

        for number in range(5):
            at.get(ref(number))
        for number in range(100, 104):
            at.get(ref(number))
        assert ([2, 3, 4], [102, 103]) == (remembered(range(5)), remembered(range(100, 104)))
        assert '"string"' == at.get(ref(0))
        monkeypatch.setattr(decoders_module, "MAX_DECODER_BYTES", 2 * Schema("AVRO", '"string"').decoder_bytes)
        at.get(ref(5))
        assert 2 == len(remembered(range(6)))


def test_what_is_abandoned_is_not_fetched_and_no_outage(tmp_path: Path) -> None:
    """Its partition has another owner now."""
    with serving(Registry(behaviour=status(503))) as registry, desk(registry, tmp_path) as at:
        at.try_(ref(7))
        at.until(lambda: at.decoders.state().away_s > 0)
        at.decoders.abandon([ref(7)])
        assert (0, 0.0) == (at.decoders.state().wanted, at.decoders.state().away_s)


@pytest.mark.slow
def test_closing_waits_for_no_network(tmp_path: Path) -> None:
    """A request that hangs is left to its thread, which is a daemon."""
    with serving(Registry(behaviour=silent)) as registry:
        at = Desk(registry.url, tmp_path, timeout_s=10 * PATIENCE_S)  # longer than this test may take
        at.try_(ref(7))
        at.until(lambda: registry.asked == ["7"])
        at.decoders.close()
        assert {True} == {each.daemon for each in threading.enumerate() if each.name == "schema-fetcher"}


def test_a_bug_in_the_thread_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised where the loop looks."""
    monkeypatch.setattr(decoders_module, "Answer", None)
    with serving(Registry({"7": TEXT})) as registry, desk(registry, tmp_path) as at:
        at.try_(ref(7))
        with pytest.raises(TypeError):
            at.wait_for(ref(7))


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


@contextmanager
def waiting(registry: Registry, *, timeout_s: float) -> Iterator[tuple[WaitingDecoders, Arrived]]:
    """Decoders that ask this registry, and what tells them that something has arrived."""
    arrived = Arrived()
    client = RegistryClient(registry.url, {}, timeout_s=PATIENCE_S, max_schema_bytes=1_000)
    fetcher = Fetcher(client.schema, compiled, wake=arrived.set, unknown_wait_s=0.0)
    with closing(RegistryDecoders(fetcher)) as decoders:
        yield WaitingDecoders(decoders, arrived, timeout_s=timeout_s), arrived


def test_an_answer_is_waited_for_and_no_longer() -> None:
    """The first record by a schema is read like every later one; a reason comes as soon as it is known."""
    registry = Registry({"7": {"schema": "its text"}})
    with serving(registry), waiting(registry, timeout_s=PATIENCE_S) as (decoders, _):
        assert "its text" == decoders.decoder(ref(7))(b"")
        with pytest.raises(InvalidArticle, match="unknown"):
            decoders.decoder(ref(8))


def test_after_one_wait_in_vain_later_records_do_not_wait() -> None:
    """Otherwise `tail` would show one record in ten seconds while the registry is away."""
    with (
        serving(Registry({"7": {"schema": "its text"}}, behaviour=silent)) as registry,
        waiting(registry, timeout_s=0.01) as (decoders, arrived),
    ):
        for _ in range(3):
            with pytest.raises(SchemaPending):
                decoders.decoder(ref(7))
        assert [True, False, False] == [waited_s > 0 for waited_s in arrived.waited_s]
        registry.behaviour = None
        registry.closing.set()  # ends the silence
        assert arrived.wait(PATIENCE_S)
        assert "its text" == decoders.decoder(ref(7))(b"")
