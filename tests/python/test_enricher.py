"""`Enricher`: order, refusals, errors, ends, threads and bounds of the Python interface, on a stub for the model."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from support.patience import PATIENCE_S
from support.records import record_of_tasks

from enricher.answers import Record, Refusal, Regression
from enricher.errors import ModelError, SettingsError, Stalled
from enricher.interface import Enricher
from enricher.worker.articles.record_values import encode_record, serialise_findings
from enricher.worker.records import Batch, BatchResult, Partition, RawRecord
from enricher.worker.settings import Settings, given_settings
from enricher.worker.wiring.memory_runs import recompute
from tools.chaos.stub import BAD_WORD, StubEngine, stub_model
from tools.worker_parts import tasks_of

IN_FLIGHT = 100
MOST_AHEAD = 2 * 256 + 2 * IN_FLIGHT
"""Articles that may be taken before their answers: those that wait for the worker, those in it, and answers to be taken."""


def enricher_of(engine: StubEngine | None = None, **groups: Any) -> Enricher:  # noqa: ANN401  as `load`
    """An enricher with a stub for its model."""
    settings = given_settings(groups)
    return Enricher(settings, tasks_of(settings, stub_model(engine or StubEngine())))


@pytest.fixture
def enricher() -> Iterator[Enricher]:
    """An enricher that leaves no thread behind."""
    before = set(threading.enumerate())
    with enricher_of() as made:
        yield made
    assert [] == [thread.name for thread in threading.enumerate() if thread not in before]


def articles(count: int) -> Iterator[dict[str, Any]]:
    """So many articles of different lengths."""
    for number in range(count):
        yield {"id": str(number), "title": f"Number {number}", "body": "It rained all day. " * (number % 7 + 1)}


def ids_of(answers: Iterable[Record | Refusal]) -> list[str]:
    """The ids of records; the reasons of refusals."""
    return [answer.id if answer.reason is None else answer.reason for answer in answers]


def test_each_article_has_its_record_in_order_as_the_worker_writes_it(enricher: Enricher) -> None:
    """Byte for byte the value that a worker between topics would write; entities are objects."""
    wanted = [*articles(300)]
    raw = [RawRecord(Partition("articles", 0), 0, None, orjson.dumps(each)) for each in wanted]
    expected = recompute(Settings(), tasks_of(Settings(), stub_model(StubEngine())), raw)
    records = [*enricher.enrich(wanted)]
    assert expected == [record.json() for record in records if record.reason is None]
    assert [*range(300)] == [record.offset for record in records]
    for record in records:
        assert isinstance(record, Record)
        texts = wanted[record.offset]
        assert all(texts[each.field][each.start : each.end] == each.text for each in record.entities)
    assert any(record.entities for record in records if record.reason is None)


class Anything(dict[str, Any]):
    """A mapping that answers for every name, as those of some packages do: it is no batch of Arrow's for that."""

    def __getattr__(self, name: str) -> Anything:
        """The same for each."""
        return Anything()


def test_articles_are_mappings_or_json(enricher: Enricher) -> None:
    """JSON may be bytes or text, as the lines of a file are; a record survives pickling."""
    mappings = [{"id": "a", "body": "x"}, Anything({"id": "d", "body": "x"})]
    found = [*enricher.enrich([*mappings, b'{"id": "b", "body": "x"}\n', '{"id": "c", "body": "x"}'])]
    assert ["a", "d", "b", "c"] == ids_of(found)
    assert found == pickle.loads(pickle.dumps(found))


def test_a_record_shows_its_id_and_its_first_entities() -> None:
    """In a notebook one reads what was found, and not bytes; the list is bounded."""
    entity = {"field": "body", "start": 0, "end": 3, "text": "Ann", "label": "PER", "score": 0.9}
    few, many = (Record(7, orjson.dumps({"id": "a", "entities": [entity] * count})) for count in (1, 12))
    assert "Record(offset=7, id='a', entities=[PER 'Ann'])" == repr(few)
    assert repr(many).endswith("PER 'Ann', and 2 more])")


@pytest.mark.slow
def test_the_package_is_found_above_a_clone(tmp_path: Path) -> None:
    """A folder of its name in the current directory, such as a clone, must not become a namespace package."""
    (tmp_path / "enricher").mkdir()
    command = [sys.executable, "-c", "from enricher import Enricher"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": ""}, timeout=PATIENCE_S)


def test_a_refused_article_is_a_value_in_its_place(enricher: Enricher) -> None:
    """Whether it cannot be written as JSON, is no article, or defeats the model; the articles behind it go on."""
    given: list[Any] = [
        {"id": "0", "body": "x"},
        {"id": "1", "body": object()},
        {"id": "2"},
        b"{",
        {"id": "4", "body": BAD_WORD},
        "\ud83d",
        {"id": "6", "body": "x" * 5_000_000},
        {"id": "7", "body": "x"},
    ]
    found = [*enricher.enrich(given)]
    refused = {each.offset: each for each in found if isinstance(each, Refusal)}
    assert [*range(8)] == [each.offset for each in found]
    assert {1, 2, 3, 4, 5, 6} == set(refused)
    assert "body is missing" == refused[2].reason
    assert ("inference", "decode") == (refused[4].stage, refused[1].stage)
    assert all("x" * 9 not in each.reason for each in refused.values()), "no text of an article is in a reason"


class Problems(Exception):
    """One that collects problems, and is false while it has none; it must not pass for the end."""

    def __len__(self) -> int:
        """It has none."""
        return 0


@pytest.mark.parametrize("error", [LookupError("the database has gone"), Problems()], ids=repr)
def test_an_error_of_the_iterator_comes_after_the_records_before_it(enricher: Enricher, error: Exception) -> None:
    """It is the iterator's own error."""

    def broken() -> Iterator[dict[str, Any]]:
        yield from articles(40)
        raise error

    answers, seen = enricher.enrich(broken()), list[Record | Refusal]()
    with pytest.raises(type(error)) as raised:
        seen.extend(answers)
    assert (error, 40) == (raised.value, len(seen))


@pytest.mark.parametrize("wrong", [7, None, ["id"]])
def test_what_is_no_article_is_a_type_error_in_its_place(enricher: Enricher, wrong: Any) -> None:  # noqa: ANN401  any type
    """It is a mistake of the program, not of an article."""
    answers, seen = enricher.enrich([*articles(3), wrong]), list[Record | Refusal]()
    with pytest.raises(TypeError, match=f"not {type(wrong).__name__}"):
        seen.extend(answers)
    assert 3 == len(seen)


@pytest.mark.parametrize("single", ["articles.jsonl", b"{}", {"id": "a", "body": "x"}])
def test_a_single_article_is_refused_at_once(enricher: Enricher, single: Any) -> None:  # noqa: ANN401  as above
    """Its characters or keys would be taken for articles."""
    with pytest.raises(TypeError, match="put a single article into a list"):
        enricher.enrich(single)


@pytest.mark.slow
def test_a_consumer_that_stops_early_leaves_no_thread(enricher: Enricher) -> None:
    """However it stops; the fixture looks for threads too."""
    before = set(threading.enumerate())
    for answer in enricher.enrich(articles(10**9)):
        if answer.offset == 20:
            break
    del answer
    assert set(threading.enumerate()) <= before
    answers = iter(enricher.enrich(articles(10**9)))
    next(answers)
    assert before != set(threading.enumerate())


@pytest.mark.slow
def test_articles_are_taken_by_the_caller_and_not_far_ahead() -> None:
    """In its own thread, which a database connection may need, and some hundred before those in flight."""
    taken = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for article in articles(1_500):
            assert threading.current_thread() is threading.main_thread()
            taken += 1
            yield article

    with enricher_of(worker={"max_in_flight_articles": IN_FLIGHT}) as made:
        most = max(taken - answer.offset for answer in made.enrich(counted()))
    assert taken == 1_500
    assert 1 < most <= MOST_AHEAD


def test_large_articles_are_not_taken_ahead() -> None:
    """The sum of their bytes counts: two of them wait at most, whatever their number."""
    taken, article = 0, b'{"id": "a", "body": "%s"}' % (b"x" * 40_000_000)

    def large() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(6):
            taken += 1
            yield article

    with enricher_of() as made:
        answers = made.enrich(large())
        ahead = [taken - answer.offset for answer in answers]
    assert max(ahead) < 6
    assert 6 == taken


def test_a_closed_enricher_enriches_no_more() -> None:
    """Neither in a new call, nor in one that was going on."""
    made = enricher_of()
    before = set(threading.enumerate())
    answers = made.enrich(articles(10**9))
    never = made.enrich(articles(10**9))
    next(answers)
    made.close()
    made.close()
    assert set(threading.enumerate()) <= before
    for each in (answers, never):
        with pytest.raises(RuntimeError, match="closed"):
            next(each)
    with pytest.raises(RuntimeError, match="closed"):
        made.enrich([])


def test_several_threads_and_several_enrichers_at_once(enricher: Enricher) -> None:
    """Each call has its own order; they share the model of their enricher."""
    found: dict[int, list[str]] = {}
    with enricher_of() as other:

        def enrich(number: int) -> None:
            found[number] = ids_of((enricher, other)[number % 2].enrich(articles(100 + number)))

        threads = [threading.Thread(target=enrich, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert {number: [str(each) for each in range(100 + number)] for number in range(4)} == found


def test_ctrl_c_passes_at_once_and_ends_the_threads(enricher: Enricher) -> None:
    """Also in the middle of the caller's own iterator; the records before it are not waited for."""

    def interrupted() -> Iterator[dict[str, Any]]:
        yield from articles(5)
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        [*enricher.enrich(interrupted())]
    assert set(threading.enumerate()) <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_instead_of_hanging(enricher: Enricher) -> None:
    """The threads of the model are not there; the parent goes on."""
    answers = enricher.enrich(articles(400))
    next(answers)

    def try_both() -> None:
        refused = 0
        for attempt in (lambda: enricher.enrich([]), lambda: next(answers)):
            try:
                attempt()
            except RuntimeError:
                refused += 1
        sys.exit(refused)

    child = multiprocessing.get_context("fork").Process(target=try_both)
    child.start()
    child.join(PATIENCE_S)
    assert 2 == child.exitcode
    assert 399 == len([*answers])


def test_an_error_of_the_model_reaches_the_caller() -> None:
    """The device is gone: nothing after that is enriched, and no thread stays."""

    class Broken(StubEngine):
        def run(self, batch: Batch) -> BatchResult:
            del batch
            raise ModelError("the device does not run the model any more")

    before = set(threading.enumerate())
    with enricher_of(Broken()) as made, pytest.raises(ModelError, match="does not run"):
        [*made.enrich(articles(5))]
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_a_model_that_hangs_is_an_error_and_not_the_end_of_the_process() -> None:
    """The worker of a topic would end its process; here the caller decides."""
    engine = StubEngine()
    engine.hang_s = 2.5
    with enricher_of(engine, worker={"engine_timeout_s": 1}) as made, pytest.raises(Stalled, match="a batch for 1 s"):
        [*made.enrich(articles(1))]


def test_no_articles_are_no_records(enricher: Enricher) -> None:
    """And an iterator that is never asked starts nothing."""
    before = set(threading.enumerate())
    enricher.enrich(articles(3))
    assert set(threading.enumerate()) <= before
    assert [] == [*enricher.enrich(())]


def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program passes decides alone; a mistake is named as the program wrote it."""
    monkeypatch.setenv("ENRICHER_ARTICLES__MAX_ARTICLE_CHARS", "5")
    monkeypatch.setenv("ENRICHER_NO_SUCH_GROUP__X", "1")
    assert 1_000_000 == given_settings({}).articles.max_article_chars
    assert 9 == given_settings({"articles": {"max_article_chars": 9}}).articles.max_article_chars
    with pytest.raises(SettingsError, match=r"^batching.max_wait_ms: .*greater.*\nmodels: .*did you mean model\?"):
        Enricher.load(batching={"max_wait_ms": -1}, models={})
    with pytest.raises(TypeError, match="not both"):
        Enricher.load("newswire-e5", settings=given_settings({}))
    with pytest.raises(SettingsError, match=r"kafka: without effect here.*enricher run"):
        Enricher.load(kafka={"input_topic": "articles"})


def test_a_delete_event_is_refused_by_name() -> None:
    """A program sees which articles are gone; it is one answer for each, as ever."""
    deleted = {"field": "/op", "values": ["d"]}
    with enricher_of(articles={"deleted": deleted}) as made:
        gone, kept = made.enrich([{"id": "a", "op": "d"}, {"id": "b", "op": "c", "body": "It rained."}])
    assert isinstance(gone, Refusal)
    assert ("Deleted", 0, "b") == (gone.error_type, gone.offset, ids_of([kept])[0])


@pytest.mark.slow
@pytest.mark.usefixtures("shared_models")
def test_loading_leaves_the_garbage_of_the_program_alone() -> None:
    """A worker's own process exempts all objects from collection; those of a program would never be freed."""
    before = gc.get_freeze_count()
    with Enricher.load() as made:
        assert ["a"] == ids_of(made.enrich([{"id": "a", "body": "Ana Ribeiro lives in Lisbon."}]))
    assert gc.get_freeze_count() <= before, "some of them may be freed meanwhile"


def test_findings_of_every_kind_of_task_are_objects() -> None:
    """Vectors are float32, whether the record has numbers or halves."""
    found = record_of_tasks()
    record = Record(0, encode_record(serialise_findings(found)))
    assert [*found.entities] == [
        {name: value for name, value in asdict(each).items() if value not in (None, ())} for each in record.entities
    ]
    assert [*found.findings["classifications"]] == [asdict(each) for each in record.classifications]
    expected = {each.task.name: each.vector for each in found.findings["embeddings"]}
    assert expected.keys() == {each.task for each in record.embeddings} != set()
    for each in record.embeddings:
        assert np.float32 == each.vector.dtype
        np.testing.assert_allclose(expected[each.task], each.vector, atol=1e-3)
    assert found.coverage == record.coverage
    assert ("text", "html") == (record.body_format, Record(0, b'{"body_format":"html"}').body_format)
    assert Regression("mood", 0.5) == Record(0, b'{"regressions":[{"task":"mood","value":0.5}]}').regressions[0]


@pytest.mark.slow
def test_importing_the_package_is_cheap() -> None:
    """Commands import it too; only `Enricher` is public, and it loads the worker."""
    code = (
        "import sys, enricher; assert not {'numpy', 'pydantic', 'orjson'} & {*sys.modules}; "
        "assert enricher.__all__ == ['Enricher'] and not hasattr(enricher, 'Worker'); "
        "from enricher import Enricher; assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
