"""A catalogue that is replaced under a running worker: each record is of one version; a bad version is not taken."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest
from support.clock import Clock
from support.records import plain_record

from enricher.worker.articles.html_text import read_html
from enricher.worker.articles.record_values import write_entities
from enricher.worker.files import catalogue_index, live_catalogue
from enricher.worker.files.live_catalogue import LOOK_S, LiveCatalogue
from enricher.worker.records import Article, Coverage, DeadLetter, EnrichedRecord, Entity
from enricher.worker.rules.catalogue import TextSearch
from enricher.worker.stats import Counters


class Worker:
    """A catalogue in use, and the thread of a loop."""

    def __init__(self, path: Path, labels: tuple[str, ...] | None = None, search: TextSearch | None = None) -> None:
        self.clock, self.counters = Clock(), Counters()
        self.catalogue = LiveCatalogue(path, labels=labels, max_generation=9, search=search, clock=self.clock)

    def record(self, version: int | None = None) -> EnrichedRecord:
        """A record about Oslo, with its ids."""
        oslo = Entity(field="body", start=0, end=4, text="Oslo", label="LOC", score=1.0)
        found = self.outcome(Article("1", "", "Oslo", version=version), oslo)
        assert isinstance(found, EnrichedRecord)
        return found

    def outcome(self, article: Article, *entities: Entity) -> EnrichedRecord | DeadLetter:
        """What becomes of an article in which the model found these."""
        return self.catalogue.add_ids(
            plain_record(article, [*entities], Coverage(1, 1, truncated=False)), self.counters
        )

    def wait(self) -> None:
        """Let the time pass after which the file is looked at, and its new version be read."""
        self.clock.now_s += LOOK_S
        self.record()
        for thread in threading.enumerate():
            if thread.name == "catalogue":
                thread.join()


def write(path: Path, entry_id: str, generation: int = 0) -> None:
    """Replace a file as Kubernetes does: by another one."""
    new = path.with_suffix(".new")
    new.write_bytes(b'{"generation": %d}\n' % generation + orjson.dumps({"id": entry_id, "name": "Oslo"}))
    new.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A catalogue in which Oslo is `old`."""
    write(tmp_path / "names.jsonl", "old")
    return tmp_path / "names.jsonl"


def id_in(record: EnrichedRecord) -> str:
    """The id of its only entity."""
    return record.entities[0]["id"]


def test_a_new_version_is_taken_and_named(path: Path) -> None:
    """Its generation counts in the version of the record."""
    worker = Worker(path)
    before = worker.record(version=4096)
    write(path, "new", generation=3)
    assert "old" == id_in(worker.record()), "nobody looks at the file for each record"
    worker.wait()
    after = worker.record(version=4096)
    assert ("old", 4096, "new", 4099) == (id_in(before), before.article.version, id_in(after), after.article.version)
    assert before.catalogue is not None
    assert after.catalogue is not None
    assert before.catalogue.digest != after.catalogue.digest
    assert 3 == after.generation


@pytest.mark.parametrize("bad", [b"", b"{", b'{"id": "x", "name": "Oslo"}\n{"id":', b'{"generation": 10}\n'])
def test_a_bad_version_is_not_taken_and_everybody_hears_of_it(
    path: Path, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The old one is still good. Once the file is repaired, it is taken."""
    worker = Worker(path)
    path.write_bytes(bad)
    worker.wait()
    assert "old" == id_in(worker.record())
    assert worker.counters.catalogue_refused
    assert "is not taken, the worker goes on with sha256:" in caplog.text
    write(path, "new")
    worker.wait()
    assert "new" == id_in(worker.record())
    assert not worker.counters.catalogue_refused


def test_a_version_that_memory_was_short_for_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is good and does not change again."""
    worker = Worker(path)
    write(path, "new")
    with monkeypatch.context() as short:
        short.setattr(catalogue_index, "sha256", Mock(side_effect=MemoryError))
        worker.wait()
        worker.record()
        assert worker.counters.catalogue_refused
    worker.wait()
    assert "new" == id_in(worker.record())
    assert not worker.counters.catalogue_refused


def test_a_file_that_goes_and_comes_back_is_taken_again(path: Path) -> None:
    """While it is away, the worker goes on with what it has."""
    worker = Worker(path)
    path.rename(path.with_suffix(".away"))
    worker.wait()
    assert "old" == id_in(worker.record())
    assert worker.counters.catalogue_refused
    path.with_suffix(".away").rename(path)
    worker.wait()
    assert "old" == id_in(worker.record())
    assert not worker.counters.catalogue_refused


def test_entities_of_other_labels_are_not_looked_up(path: Path) -> None:
    """A label that is turned off is not counted either."""
    worker = Worker(path, labels=("ORG",))
    assert "ids" not in worker.record().entities[0]
    assert not worker.counters.links
    counted = Worker(path)
    counted.record()
    assert {("matched", "LOC"): 1} == counted.counters.links
    assert {"LOC": 1} == counted.counters.as_dict()["links"]["matched"]


NAMES = (
    {"id": "un", "name": "United Nations", "aliases": ["UNO", "Vereinte Nationen"], "labels": ["ORG", "MISC"]},
    {"id": "guterres", "name": "António Guterres", "aliases": ["Guterres"], "label": "PER"},
    {"id": "oslo", "name": "Oslo", "label": "LOC"},
    {"id": "oslo-ny", "name": "Oslo", "label": "MISC", "context": ["Minnesota"]},
    {"id": "fr", "name": "Nations unies", "label": "ORG", "language": "fr"},
    {"id": "any", "name": "Security Council"},
    {"id": "cut", "name": "Security\u2029Council", "label": "ORG"},
)


def found_by(path: Path, article: Article, *entities: Entity, search: TextSearch | None = None) -> list[Entity]:
    """The entities of a record, with the names that are found in its text."""
    path.write_bytes(b"\n".join(map(orjson.dumps, NAMES)))
    worker = Worker(path, search=search or TextSearch(4))
    record = worker.outcome(article, *entities)
    assert isinstance(record, EnrichedRecord)
    assert len(record.entities) == worker.counters.links.total()
    return list(write_entities(article, record.entities))


def test_names_in_the_text_become_entities(path: Path) -> None:
    """In the order of the text, with the entry's first label, its ids and its name, and counted apart."""
    text = "Antonio Guterres of the United Nations, not the UNO, is in Oslo. Guterres spoke to the Security Council."
    model = Entity(field="body", start=0, end=16, text="Antonio Guterres", label="PER", score=0.9)
    assert [
        ("title", 0, "Oslo", "LOC", 1.0, "catalogue", ["oslo", "oslo-ny"], None, None, None),
        ("body", 0, "Antonio Guterres", "PER", 0.9, None, ["guterres"], "guterres", "António Guterres", "only"),
        ("body", 24, "United Nations", "ORG", 1.0, "catalogue", ["un"], "un", "United Nations", "only"),
        ("body", 59, "Oslo", "LOC", 1.0, "catalogue", ["oslo", "oslo-ny"], None, None, None),
        ("body", 65, "Guterres", "PER", 1.0, "catalogue", ["guterres"], "guterres", "António Guterres", "surname"),
    ] == [
        (
            *(each["field"], each["start"], each["text"], each["label"], each["score"], each.get("source")),
            *([one["id"] for one in each["ids"]], each.get("id"), each.get("catalogue_name"), each.get("why")),
        )
        for each in found_by(path, Article("1", "Oslo", text), model)
    ]


@pytest.mark.parametrize(
    ("search", "language", "names"),
    [
        (TextSearch(3), None, ["Nations unies", "UNO", "Oslo"]),
        (TextSearch(4), "fr", ["Nations unies", "Oslo"]),
        (TextSearch(4), "en", ["Oslo"]),
        (TextSearch(3, ("MISC",)), "en", ["UNO", "Oslo"]),
        (TextSearch(5), "de", []),
    ],
)
def test_letters_labels_and_languages_say_which_names_are_found(
    path: Path, search: TextSearch, language: str | None, names: list[str]
) -> None:
    """With a list of labels, the label of an entity is the first of the entry's that is in it."""
    found = found_by(path, Article("1", "", "Nations unies, UNO, Oslo", language=language), search=search)
    assert names == [each["text"] for each in found]
    assert search.labels is None or {"MISC"} == {each["label"] for each in found}


def test_names_in_html_have_the_offsets_of_the_source(path: Path) -> None:
    """And touch no entity there."""
    source = "<p>The United <b>Nations</b> &amp; O&shy;slo</p>"
    text, source_map = read_html([source])
    found = found_by(path, Article("1", "", text, source_map=source_map))
    assert [("United <b>Nations", "United Nations"), ("O&shy;slo", "O\u00adslo")] == [
        (source[each["start"] : each["end"]], each["text"]) for each in found
    ]
    at = source.index("Nations")
    nations = Entity(field="body", start=at, end=at + 7, text="Nations", label="ORG", score=1.0)
    assert ["Nations", "O\u00adslo"] == [
        each["text"] for each in found_by(path, Article("1", "", text, source_map=source_map), nations)
    ]


def test_an_article_of_too_many_ids_is_a_dead_letter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile article would otherwise take megabytes for each kilobyte."""
    monkeypatch.setattr(live_catalogue, "MAX_IDS", 3)
    path.write_bytes(orjson.dumps({"id": "x", "name": "NASA", "label": "ORG"}))
    worker = Worker(path, search=TextSearch(4))
    assert isinstance(worker.outcome(Article("1", "", "NASA " * 3)), EnrichedRecord)
    letter = worker.outcome(Article("1", "", "NASA " * 4))
    assert isinstance(letter, DeadLetter)
    assert ("publish", "OutputTooLarge") == (letter.stage, letter.error_type)


def test_the_names_in_texts_are_replaced_with_the_catalogue(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is found is of the version that the record names; one without a name to find is not taken."""
    path.write_bytes(orjson.dumps({"id": "1", "name": "Oslo", "label": "LOC"}))
    worker = Worker(path, search=TextSearch(4))
    for entry in ({"id": "2", "name": "Bergen", "label": "LOC"}, {"id": "3", "name": "Bergen"}):
        new = path.with_suffix(".new")
        new.write_bytes(orjson.dumps(entry))
        new.replace(path)
        worker.wait()
        record = worker.outcome(Article("1", "", "Oslo and Bergen"))
        assert isinstance(record, EnrichedRecord)
        assert ["2"] == [each["id"] for each in record.entities]
    assert worker.counters.catalogue_refused
    assert "catalogue.find=text finds nothing: no entry has a label and a name of at least 4 letters" in caplog.text


def test_an_entry_is_read_once_whichever_of_its_names_are_in_the_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading one folds its 200 names: an article with all of them would otherwise fold 40,000."""
    names = [f"Alias {number}" for number in range(200)]
    path.write_bytes(orjson.dumps({"id": "1", "name": names[0], "aliases": names[1:], "label": "ORG"}))
    worker, read = Worker(path, search=TextSearch(5)), Mock(wraps=catalogue_index.read_entry)
    monkeypatch.setattr(catalogue_index, "read_entry", read)
    record = worker.outcome(Article("1", "", ", ".join(names)))
    assert isinstance(record, EnrichedRecord)
    assert (200, 1) == (len(record.entities), read.call_count)
