"""The doors for a team's own code: whatever it returns or raises is about one article, and its answers are bounded."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
import pytest
from support import team_packages
from support.records import plain_record, record_of_tasks

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles.encoder import MAX_REASON_BYTES, letter_for
from enricher.worker.articles.mapping import FieldMapping
from enricher.worker.articles.reader import ArticleReader, DeleteEvents
from enricher.worker.articles.record_values import encode_record, serialise_findings
from enricher.worker.articles.transforms import Transform, document_transform, keep_records
from enricher.worker.records import (
    Article,
    CatalogueCard,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    Entity,
    Partition,
    RawRecord,
    Skipped,
    Tombstone,
    TransformCard,
)
from enricher.worker.settings import Settings, given_settings
from enricher.worker.wiring.formats import article_reader as reader_of
from enricher.worker.wiring.formats import check_formats, read_function, transform_cards

CARD = TransformCard("fix", "team-code", "1.2")
MAX_BYTES = 1_000
GIVEN = {"id": "a", "body": "Ana Ribeiro lives in Lisbon."}
ENTITIES: list[Entity] = [
    {"field": "body", "start": 0, "end": 11, "text": "Ana Ribeiro", "label": "PER", "score": 0.9971},
    {"field": "body", "start": 21, "end": 27, "text": "Lisbon", "label": "LOC", "score": 0.99},
]
RECORD = plain_record(Article("a", "", GIVEN["body"], {"language": "en"}), ENTITIES, Coverage(7, 1, truncated=False))
Function = Callable[..., Any]


def door(function: Function, setting: str = "articles.transform") -> Transform:
    """The function behind a door."""
    return Transform(setting, CARD, function, {})


def read(function: Function, given: object = GIVEN) -> Article | Skipped:
    """The article of a document that the function has changed."""
    transform = document_transform(door(function), MAX_BYTES)
    reader = ArticleReader(max_article_chars=500, max_value_bytes=MAX_BYTES, transform=transform, keep_document=True)
    found = reader.read(RawRecord(Partition("articles", 0), 0, b"k", orjson.dumps(given), (("h", b"1"),)))
    assert isinstance(found, Article | Skipped)
    return found


def kept(function: Function, record: EnrichedRecord = RECORD) -> EnrichedRecord | DeadLetter:
    """The outcome of a record that the function has changed."""
    return keep_records((CARD,), door(function, "output.transform"), MAX_BYTES)(record)


def changed(**values: object) -> Function:
    """A function that replaces fields of a record; None removes one."""
    return lambda record: {name: each for name, each in {**record, **values}.items() if each is not None}


def refusal(function: Function) -> DeadLetter:
    """The dead letter that both doors make of such a function."""
    with pytest.raises(InvalidArticle) as refused:
        read(lambda document, _headers: function(document))
    letter, other = letter_for(refused.value), kept(function)
    assert isinstance(other, DeadLetter)
    assert ("transform", "transform", letter.error_type) == (letter.stage, other.stage, other.error_type)
    return letter


def test_a_document_is_replaced_before_the_mapping() -> None:
    """The function has the headers; fields and the whole article of the record are those of what it returns."""

    def fix(document: Mapping[str, Any], headers: tuple[tuple[str, bytes | None], ...]) -> Mapping[str, Any]:
        return MappingProxyType(
            {"id": document["id"] + headers[0][0], "body": ["One.", "Two."], "day": date(2026, 1, 2)}
        )

    article = read(fix)
    assert isinstance(article, Article)
    assert ("ah", "One.\n\nTwo.") == (article.id, article.body)
    assert b'{"id":"ah","body":["One.","Two."],"day":"2026-01-02"}' == article.document


def test_delete_events_are_judged_as_published() -> None:
    """The verifier reads `articles.deleted` in the input, so a function neither makes nor unmakes a delete event."""
    transform = document_transform(door(lambda _document, _headers: None), MAX_BYTES)
    deletes = DeleteEvents("/op", ["d"], FieldMapping())
    reader = ArticleReader(max_article_chars=9, max_value_bytes=99, deletes=deletes, transform=transform)
    given = [RawRecord(Partition("articles", 0), 0, b"k", value) for value in (b'{"op":"d"}', b"{}")]
    assert [Tombstone(), Skipped()] == [*map(reader.read, given)]


class WithoutWordsError(Exception):
    """An error whose message ends the process, or so it thinks."""

    def __str__(self) -> str:
        raise SystemExit(3)


def raising(error: BaseException) -> Function:
    """A function that raises this."""

    def fail(_given: object) -> object:
        raise error

    return fail


def recursing(given: object) -> object:
    """It has no end."""
    return recursing(given)


@pytest.mark.parametrize(
    ("function", "error_type", "message"),
    [
        (raising(KeyError("fields")), "KeyError", "'fields'"),
        (raising(SystemExit(0)), "SystemExit", "0"),
        (raising(GeneratorExit()), "GeneratorExit", ""),
        (
            raising(InvalidArticle("Ana\nleft" + "x" * 10_000_000)),
            "Exception",
            "Ana left" + "x" * (MAX_REASON_BYTES - 8),
        ),
        (raising(ValueError("x" * 10_000_000)), "ValueError", "x" * MAX_REASON_BYTES),
        (raising(ValueError("two\nlines \ud800")), "ValueError", "two lines ?"),
        (raising(WithoutWordsError()), "WithoutWordsError", "its message cannot be read"),
        (raising(type("ü x" * 500, (Exception,), {})()), "Exception", ""),
        (recursing, "RecursionError", "maximum recursion depth exceeded"),
    ],
    ids=lambda each: each[:20] if isinstance(each, str) else None,
)
def test_whatever_it_raises_is_a_dead_letter(function: Function, error_type: str, message: str) -> None:
    """Type and message are bounded, and the message of a foreign error is in no log."""
    letter = refusal(function)
    assert (error_type, message) == (letter.error_type, letter.message)
    assert len(letter.message.encode()) <= MAX_REASON_BYTES
    assert letter.foreign is (error_type != "InvalidArticle")
    assert (letter.loggable != letter.message) is letter.foreign


GARBAGE: dict[str, object] = {
    "a number": 1,
    "text": "x",
    "a list": [GIVEN],
    "a generator": iter("x"),
    "names that are no text": {1: 2},
    "values that are not JSON": {**GIVEN, "x": object()},
    "a lone surrogate": {**GIVEN, "x": "\ud800"},
    "too many bytes": {**GIVEN, "x": "y" * 5_000},
    "an array of objects": {**GIVEN, "x": np.array([object()])},
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_a_dead_letter(answer: object) -> None:
    """Whatever the function returns, of whichever type."""
    refusal(lambda _given: answer)


def test_ctrl_c_and_a_lack_of_memory_pass() -> None:
    """No record is their cause; if one is, it is found like any record that kills."""
    for error in (KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(error)):
            read(lambda document, _headers, error=error: raising(error)(document))
        with pytest.raises(type(error)):
            kept(raising(error))


def test_error_types_are_few() -> None:
    """Each is a time series: a function that makes a type for each article fills no metric."""
    transform = document_transform(door(lambda given, _: raising(type(given["id"], (Exception,), {})())(0)), MAX_BYTES)
    seen = set()
    for number in range(100):
        with pytest.raises(InvalidArticle) as refused:
            transform({"id": f"Error{number}"}, ())
        seen.add(letter_for(refused.value).error_type)
    assert {*(f"Error{number}" for number in range(32)), "Exception"} == seen


def test_what_it_keeps_or_changes_later_does_no_harm() -> None:
    """The worker reads an answer once, and hands out nothing that it reads again."""
    mine: list[dict[str, Any]] = []

    def take(given: dict[str, Any]) -> dict[str, Any]:
        mine.append(given)
        return given

    article = read(lambda document, _headers: take(document))
    record = kept(take)
    for each in mine:
        each.clear()
    assert isinstance(article, Article)
    assert isinstance(record, EnrichedRecord)
    assert GIVEN == orjson.loads(article.document or b"")
    assert encode_record(serialise_findings(RECORD, (CARD,))) == encode_record(record)


# ---- the record


def test_a_record_names_its_transforms_and_is_unchanged_without() -> None:
    """With the function's name, its package and the version; without functions not one byte is added."""
    assert serialise_findings is keep_records((), None, MAX_BYTES)
    record = keep_records((CARD,), None, MAX_BYTES)(RECORD)
    assert isinstance(record, EnrichedRecord)
    wanted = [{"name": "fix", "package": "team-code", "version": "1.2"}]
    assert wanted == orjson.loads(encode_record(record))["transforms"]
    assert b"transforms" not in encode_record(serialise_findings(RECORD))


def test_a_changed_record_is_written_as_the_function_left_it() -> None:
    """Its entities, metadata and optional fields."""
    record = kept(changed(entities=ENTITIES[:1], metadata={"second_id": [7, None]}, language="pt", source="dpa"))
    assert isinstance(record, EnrichedRecord)
    found = orjson.loads(encode_record(record))
    assert ENTITIES[:1] == found["entities"]
    assert ({"second_id": [7, None]}, "pt", "dpa") == (found["metadata"], found["language"], found["source"])
    assert ["fix"] == [each["name"] for each in found["transforms"]]
    assert {("ner", "PER"): 1} == record.labels


def test_ids_may_change_and_the_catalogue_may_not() -> None:
    """A team may drop ids, or add its own."""
    with_ids = replace(RECORD, catalogue=CatalogueCard("sha256:5f", 3))
    mine = {"ids": [{"id": "x", "match": "own"}], "id": "x", "why": "own"}
    record = kept(changed(entities=[ENTITIES[0] | mine]), with_ids)
    assert isinstance(record, EnrichedRecord)
    assert "x" == record.entities[0]["id"]
    assert with_ids.catalogue == record.catalogue
    assert isinstance(kept(changed(catalogue={"digest": "mine", "generation": 4}), with_ids), DeadLetter)


def test_entities_that_the_catalogue_found_are_of_no_task() -> None:
    """They are not counted as a model's, and a worker whose tasks find no entities may have them."""
    oslo: Entity = {**record_of_tasks().entities[0], "source": "catalogue"}
    for first in (0, 1):
        record = replace(record_of_tasks(), entities=[oslo], tasks=record_of_tasks().tasks[first:])
        found = kept(changed(metadata={"seen": True}), record)
        assert isinstance(found, EnrichedRecord)
        assert [oslo] == [*found.entities]
        assert "LOC" not in {label for _, label in found.labels}


def test_classes_may_change_and_vectors_may_not() -> None:
    """Vectors and numbers are the model's."""
    record = record_of_tasks()
    before = orjson.loads(encode_record(record))
    classes = [{**each, "label": "house style"} for each in before["classifications"]]
    found = kept(changed(classifications=classes), record)
    assert isinstance(found, EnrichedRecord)
    assert classes == orjson.loads(encode_record(found))["classifications"]
    assert before["embeddings"] == orjson.loads(encode_record(found))["embeddings"]
    assert isinstance(kept(changed(embeddings=[]), record), DeadLetter)


def entity(**values: object) -> Function:
    """A function that replaces fields of the first entity; None removes one."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        made = copy.deepcopy(record)
        first = {**made["entities"][0], **values}
        made["entities"][0] = {name: each for name, each in first.items() if each is not None}
        return made

    return change


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (changed(id="b"), "id"),
        (changed(model={"name": "better"}), "model"),
        (changed(coverage=None), "coverage"),
        (changed(transforms=[]), "transforms"),
        (changed(mine=1), "mine"),
        (changed(entities=None), "entities"),
        (changed(classifications=[]), "classifications"),
        (changed(entities="x"), "entities"),
        (changed(language=3), "language"),
        (changed(metadata=[]), "metadata"),
        (changed(metadata={"x" * 200: 1}), "metadata"),
        (entity(score=1.5), "score"),
        (entity(score="1"), "score"),
        (entity(start=-1), "start"),
        (entity(start="0"), "start"),
        (entity(end=2**31), "end"),
        (entity(start=11), "ends"),
        (entity(text=""), "text"),
        (entity(label=None), "label"),
        (entity(field="lead"), "field"),
        (entity(kind="x"), "kind"),
        (entity(task="mine"), "task"),
    ],
)
def test_what_is_no_record_is_a_dead_letter_that_names_the_part(function: Function, part: str) -> None:
    """The schema of records decides, in every output format; the value is never shown."""
    letter = kept(function)
    assert isinstance(letter, DeadLetter)
    assert ("transform", "InvalidArticle") == (letter.stage, letter.error_type)
    assert part in letter.message


def test_the_time_of_both_is_counted() -> None:
    """Each door has its own sum, with the calls that fail."""
    seconds: dict[str, float] = {}
    before, after = (Transform(f"{name}.transform", CARD, len, seconds) for name in ("articles", "output"))
    for each in (before, after):
        with pytest.raises(InvalidArticle):
            each(lambda _: None, 1)
    assert {"articles", "output"} == {name for name, each in seconds.items() if each > 0}


# ---- the settings


CODE = """
def fix(document, headers):
    return document
def both(record):
    return record
def broken(): ...
def twice(document, headers): ...
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, with two in it."""
    team_packages.install(tmp_path, CODE, ["fix", "both", "broken", "gone", "twice"])
    team_packages.install(tmp_path, CODE, ["twice"], package="other-code", version="3")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "team_code", raising=False)
    return tmp_path


def named(before: str | None, after: str | None = None) -> Settings:
    """Settings that name these."""
    groups = {"articles": {"transform": before}, "output": {"transform": after}}
    return given_settings(groups)


def test_functions_are_found_by_their_entry_points(team: Path) -> None:
    """Both doors, and the cards of the records, in the order of the calls."""
    del team
    settings = named("fix", "both")
    check_formats(settings)
    assert (TransformCard("fix", "team-code", "1.2"), TransformCard("both", "team-code", "1.2")) == transform_cards(
        settings
    )
    raw = RawRecord(Partition("articles", 0), 0, None, orjson.dumps(GIVEN))
    assert isinstance(read_function(settings, reader_of(settings), by_language=False)(raw), Article)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("fixx", None, "'fixx' in the group enricher.transforms; those installed are both, broken, fix, gone, twice"),
        ("os:system", None, "no package has the entry point 'os:system'"),
        ("gone", None, "gone of team-code 1.2 cannot be called with 2 arguments: AttributeError"),
        ("broken", None, "cannot be called with 2 arguments: TypeError: too many positional arguments"),
        ("twice", None, r"there are twice of other-code 3 and twice of team-code 1\.2"),
        (None, "fix", "output.transform: fix of team-code 1.2 cannot be called with 1 arguments"),
    ],
)
@pytest.mark.usefixtures("team")
def test_a_name_that_cannot_be_used_is_refused(before: str | None, after: str | None, message: str) -> None:
    """At the start, before a model is loaded."""
    with pytest.raises(SettingsError, match=message):
        check_formats(named(before, after))


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "import gone_for_good", "raise ValueError('x' * 10**7)"])
def test_a_package_that_cannot_be_imported_is_refused(team: Path, code: str) -> None:
    """Whatever the import raises; the message is bounded."""
    (team / "team_code.py").write_text(code, "utf-8")
    with pytest.raises(SettingsError, match="fix of team-code") as refused:
        check_formats(named("fix"))
    assert len(str(refused.value)) < 2 * MAX_REASON_BYTES
