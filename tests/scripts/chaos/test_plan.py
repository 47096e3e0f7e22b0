"""What a seed decides: kinds, parameters and inputs, independent of timing."""

from __future__ import annotations

import io
from itertools import islice

import fastavro
import orjson
import pytest

from tools.chaos.articles import Articles
from tools.chaos.faults import KINDS, Fault, plan
from tools.chaos.reference import Expected, expected
from tools.chaos.scene import java_hash
from tools.chaos.schemas import UNKNOWN_IDS, frame


def first(seed: int, count: int) -> list[tuple[type[Fault], float]]:
    """The first kinds of a plan, each with its first random number."""
    return [(kind, chosen.random()) for kind, chosen in islice(plan(seed), count)]


def test_seed_repeats_kinds_and_parameters() -> None:
    """The same seed gives the same faults; another seed gives others."""
    assert first(1, 100) == first(1, 100)
    assert first(1, 100) != first(2, 100)


def test_parameters_of_one_fault_do_not_move_those_of_the_next() -> None:
    """A fault's use of its random source does not change the next fault."""
    drawn = []
    for kind, chosen in islice(plan(1), 50):
        drawn.append((kind, chosen.random()))
        for _ in range(len(drawn)):
            chosen.random()
    assert first(1, 50) == drawn


def test_every_kind_comes_once_in_each_round() -> None:
    """Each round contains every kind once."""
    kinds = [kind for kind, _ in first(3, 2 * len(KINDS))]
    assert set(KINDS) == set(kinds[: len(KINDS)]) == set(kinds[len(KINDS) :])


def test_kinds_have_names_of_their_own_and_there_are_enough() -> None:
    """The report tells kinds apart by name."""
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 20


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("abc", 96_354), ("Hello World", 862_545_276), ("polygenelubricants", 0), ("é", 233)]
)
def test_partition_of_a_group_is_found_as_java_does(text: str, value: int) -> None:
    """Java's `String.hashCode`, made positive; `Hello World` hashes to -862545276 there."""
    assert value == java_hash(text)


def test_articles_by_number_are_the_same_each_time_with_keys_of_their_own() -> None:
    """An input depends on its number alone, and the mix has all kinds."""
    articles, others = Articles("run"), Articles("run")
    inputs = [articles.input(number) for number in range(200)]
    assert inputs == [others.input(number) for number in reversed(range(200))][::-1]
    assert len({each.key for each in inputs}) == 200
    assert {"record", "tombstone", "decode", "inference"} == {expected(each.value).kind for each in inputs}
    assert {"decode"} == {expected(articles.poison(number).value).kind for number in range(20)}


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8_191, 8_192, 100_000])
def test_an_article_in_avro_is_expected_as_the_same_article_in_json(length: int) -> None:
    """Written and read by hand, and by a library, so that neither the workload nor the check is wrong alone."""
    article = {"id": "é-1", "title": "Ärger", "body": "ü" * length}
    payload = io.BytesIO()
    fields = [{"name": name, "type": "string"} for name in article]
    fastavro.schemaless_writer(payload, {"type": "record", "name": "Article", "fields": fields}, article)
    framed = frame(7, *article.values())
    assert b"\0\0\0\0\x07" + payload.getvalue() == framed
    assert expected(orjson.dumps(article)) == expected(framed)


def test_with_two_tasks_the_same_articles_have_ratings_or_fail_alone() -> None:
    """All else of their records stays as it is."""
    articles = Articles("run")
    values = [articles.input(number).value for number in range(80)]
    pairs = [(expected(value), expected(value, two_tasks=True)) for value in values]
    failed = [both for one, both in pairs if one.kind == "record" and both.kind == "inference"]
    assert 0 < len(failed) < len(pairs) / 4
    rated = [
        (orjson.loads(one.value or b""), orjson.loads(both.value or b""))
        for one, both in pairs
        if both.kind == "record"
    ]
    for one, both in rated:
        added = {name: both.pop(name) for name in ("classifications", "embeddings", "tasks")}
        assert one == both
        assert {"1", "2", "3", "4", "5"} == {each["label"] for each in added["classifications"]}
        assert ["ner", "rating"] == [each["name"] for each in added["tasks"]]


def test_an_article_whose_schema_nobody_knows_is_expected_as_a_dead_letter() -> None:
    """With its value unchanged."""
    value = frame(UNKNOWN_IDS[-1], "no", "such", "schema")
    assert Expected("decode", value) == expected(value)
    articles = Articles("run")
    flood = [articles.unknown(number).value or b"" for number in range(100)]
    assert [(6, Expected("decode", each)) for each in flood] == [(len(each), expected(each)) for each in flood]
    assert len(flood) == len({each[:5] for each in flood})
