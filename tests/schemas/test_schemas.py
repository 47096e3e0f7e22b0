"""The contracts and the code against each other: neither may say what the other does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.offenders import assert_none
from support.properties import any_text
from support.records import encoder_of, finished, plain_record, writer_of

from enricher.errors import InvalidArticle
from enricher.worker.articles import (
    FORMATS,
    MAX_CHARS,
    MAX_ID_CHARS,
    MAX_REASON_BYTES,
    METADATA_FIELDS,
    RECORD_NAMESPACE,
    encode_record,
    record_as_json,
    record_headers,
)
from enricher.worker.articles.html_text import read_html
from enricher.worker.records import (
    Article,
    CatalogueCard,
    Classification,
    Coverage,
    DeadLetter,
    Embedding,
    EnrichedRecord,
    Entity,
    ModelCard,
    Partition,
    RawRecord,
    TaskCard,
    TaskReport,
    TransformCard,
)
from tools.worker_parts import decode_article

SCHEMAS = Path(__file__).parents[2] / "schemas"
HEADERS = ("enriched-record-headers.v2", "dead-letter-headers.v1")
NAMES = ("article.v1", "enriched-record.v1", *HEADERS)
TOPIC_ID = "kz7-Q2mNTXS0b_1d0wY3sA"
LIMIT_CHARS = 100_000
CARD = ModelCard("newswire-minilm", "sha256:6a1f0c", "int8")

texts = any_text(max_size=12)


def load(path: Path) -> Any:  # noqa: ANN401  JSON may be anything
    """Read a JSON file as any consumer would."""
    return json.loads(path.read_text(encoding="utf-8"))


def schema(name: str) -> dict[str, Any]:
    """Read one of the schemas."""
    document: dict[str, Any] = load(SCHEMAS / f"{name}.schema.json")
    return document


VALIDATORS = {name: Draft202012Validator(schema(name)) for name in NAMES}


def examples(kind: str, *names: str) -> list[Path]:
    """The example files of one kind."""
    return [path for name in names or NAMES for path in sorted((SCHEMAS / "examples" / name / kind).glob("*.json"))]


def in_short(path: Path) -> str:
    """An example by its schema and name."""
    return f"{path.parts[-3]}/{path.stem}"


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_one_and_says_which(name: str) -> None:
    """Each is valid draft 2020-12, has a urn as its name, a title, and a description for itself and every property."""
    document = schema(name)
    Draft202012Validator.check_schema(document)
    stem, version = name.split(".v")
    assert document["$id"] == f"urn:enricher:schema:{stem}:{version}"
    assert document["title"]
    described = [document, *document["properties"].values()]
    assert all(part["description"] for part in described)


def refusal(value: bytes) -> str | None:
    """Tell why the worker refuses an article; None where it takes it."""
    try:
        decode_article(value, max_article_chars=LIMIT_CHARS)
    except InvalidArticle as error:
        return str(error)
    return None


def test_each_schema_has_examples_of_both_kinds() -> None:
    """An empty folder would make the tests below pass for nothing."""
    assert {True} == {len(examples("valid", name)) >= 3 and len(examples("invalid", name)) >= 8 for name in NAMES}


def test_examples_are_what_their_folder_says() -> None:
    """What we show as an example passes its schema, and what we show as a mistake does not."""
    assert_none(
        f"{in_short(path)} is not {kind}"
        for kind in ("valid", "invalid")
        for path in examples(kind)
        if VALIDATORS[path.parts[-3]].is_valid(load(path)) is not (kind == "valid")
    )


def test_valid_articles_are_decoded() -> None:
    """An article that we show as an example is one to the worker."""
    for path in examples("valid", "article.v1"):
        assert load(path)["id"] == decode_article(path.read_bytes(), max_article_chars=LIMIT_CHARS).id


def test_invalid_articles_are_refused_for_the_field_that_names_their_file() -> None:
    """The worker refuses them too, and for the reason that the example is there for."""
    subject = {"published": "published_at", "not": "value", "no": "title and body"}
    for path in examples("invalid", "article.v1"):
        first = path.stem.split("-")[0]
        assert (refusal(path.read_bytes()) or "").startswith(f"{subject.get(first, first)} "), in_short(path)


def test_rules_beyond_the_schema_are_the_workers() -> None:
    """The folder holds what the schema cannot refuse and the worker does: no more, no less."""
    found = examples("invalid-beyond-the-schema", "article.v1")
    assert found
    for path in found:
        assert VALIDATORS["article.v1"].is_valid(load(path)), in_short(path)
        assert refusal(path.read_bytes()), in_short(path)


lengths = st.sampled_from([257, MAX_ID_CHARS + 1, 2_049, 8_193])
values = texts | st.none() | st.integers() | st.lists(texts, max_size=1) | lengths.map(lambda chars: "x" * chars)


@given(st.dictionaries(st.sampled_from(["id", "title", "body", *METADATA_FIELDS, "other"]), values, max_size=8))
def test_schema_and_worker_judge_alike(document: dict[str, Any]) -> None:
    """For any object: both take it or both refuse it, but for invisible text, which only the worker sees."""
    reason = refusal(json.dumps(document).encode())
    if VALIDATORS["article.v1"].is_valid(document):
        assert reason in (None, "title and body have no visible character")
    else:
        assert reason is not None


@given(
    article=st.builds(
        Article,
        any_text(min_size=1, max_size=9),
        texts,
        texts.map(lambda text: text + "Oslo"),
        st.dictionaries(st.sampled_from(METADATA_FIELDS), texts),
        st.none()
        | st.dictionaries(texts, st.none() | st.integers(-9, 9) | st.lists(texts), min_size=1).map(orjson.dumps),
        st.none() | st.sampled_from(["", "\n\n"]),
        st.none() | st.dictionaries(texts, texts).map(orjson.dumps),
    ),
    label=st.sampled_from(["PER", "LOC"]),
    score=st.floats(0, 1),
    coverage=st.builds(Coverage, st.integers(0, 10**6), st.integers(0, 10**4), st.booleans()),
)
def test_written_record_is_valid(article: Article, label: str, score: float, coverage: Coverage) -> None:
    """Whatever the model found in whatever article, the record passes its schema."""
    start = len(article.body) - 4
    entity = Entity(field="body", start=start, end=len(article.body), text="Oslo", label=label, score=score)
    written = encode_record(plain_record(article, (entity,), coverage))
    VALIDATORS["enriched-record.v1"].validate(orjson.loads(written))


def test_every_written_field_is_described_and_the_other_way_round() -> None:
    """A field that only one side knows is a field that somebody waits for in vain; no format lacks one of them."""
    properties = schema("enriched-record.v1")["properties"]
    entity = schema("enriched-record.v1")["$defs"]["entity"]["properties"]
    _, html = read_html(["Oslo"])
    article = Article(
        "1",
        "",
        "Oslo",
        dict.fromkeys(METADATA_FIELDS, "x"),
        b'{"section":"x"}',
        "\n",
        b"{}",
        ("title",),
        version=VERSION,
        source_map=html,
    )
    found = Entity(field="body", start=0, end=4, text="Oslo", label="LOC", score=1.0, task="names")
    found |= Entity(
        ids=[{"id": "Q585", "match": "name"}], id="Q585", why="only", source="catalogue", catalogue_name="Oslo"
    )  # type: ignore[typeddict-item]
    vectors = [TaskCard(form, "embedding", CARD, "mean", form) for form in ("list", "float16")]
    coverage, number = Coverage(1, 1, truncated=False), TaskCard("mood", "regression", CARD, "mean")
    record = EnrichedRecord(
        article,
        (found,),
        coverage,
        [TaskReport(card, coverage) for card in (*vectors, number)],
        {
            "classifications": [Classification(task="topic", label="sports", score=0.5)],
            "embeddings": [Embedding(card, np.ones(2, np.float32)) for card in vectors],
            "regressions": [{"task": "mood", "value": 0.5}],
        },
        transforms=[TransformCard("fix", "team-code", "1.2")],
        catalogue=CatalogueCard("sha256:5f", 3),
    )
    written = orjson.loads(encode_record(record))
    assert properties.keys() == written.keys()
    assert entity.keys() == written["entities"][0].keys()
    definitions = schema("enriched-record.v1")["$defs"]
    for name in ("classification", "embedding", "regression", "task", "transform"):
        assert definitions[name]["properties"].keys() == {key for each in written[f"{name}s"] for key in each}
    assert definitions["candidate"]["properties"].keys() == written["entities"][0]["ids"][0].keys()
    for part in ("model", "coverage", "catalogue"):
        assert properties[part]["properties"].keys() == written[part].keys()
    for name, written_format in FORMATS.items():
        value = writer_of(name).write(record)
        assert written == orjson.loads(record_as_json(value, written_format.content_type)), name


def test_offsets_of_the_example_records_count_in_their_articles() -> None:
    """The README's readers try them: in an article, in joined paragraphs, in HTML, whose slice has the markup."""
    folder = SCHEMAS / "examples/enriched-record.v1/valid"
    article = load(SCHEMAS / "examples/article.v1/valid/full.json")
    full, paragraphs, html = (
        load(folder / f"{name}.json") for name in ("full", "paragraphs-and-metadata", "html-body")
    )
    assert article == load(folder / "whole-article.json")["article"], "one topic tells both"
    assert full["id"] == article["id"]
    joined = {"body": paragraphs["body_separator"].join(paragraphs["article"]["content"]["text"])}
    for texts, record in ((article, full), (joined, paragraphs)):
        assert record["entities"]
        for entity in record["entities"]:
            assert texts[entity["field"]][entity["start"] : entity["end"]] == entity["text"]
    entity = html["entities"][1]
    assert ("html", "Ana\xa0Müller") == (html["body_format"], entity["text"])
    assert "Ana</b>&nbsp;M&uuml;ller" == html["article"]["body"][entity["start"] : entity["end"]]


RAW = RawRecord(Partition("articles", 3), 1042, b"key", b"{}", topic_id=TOPIC_ID)
VERSION = 1042 << 12


@pytest.mark.parametrize("tombstone", [False, True])
def test_written_record_headers_are_the_example(*, tombstone: bool) -> None:
    """Which is valid: a header that only one side knows helps nobody."""
    written = {name: value.decode() for name, value in record_headers(RAW, version=VERSION, tombstone=tombstone)}
    name = "tombstone" if tombstone else "record"
    assert load(SCHEMAS / f"examples/{HEADERS[0]}/valid/{name}.json") == written


@given(
    letter=st.builds(
        DeadLetter,
        st.sampled_from(["decode", "transform", "tokenize", "inference", "publish"]),
        any_text(min_size=1, max_size=2000),
        any_text(max_size=2000),
        st.integers(1, 9),
    ),
    time_s=st.floats(0, 4e9),
    value_bytes=st.integers(0, 9000),
    topic_id=st.sampled_from([None, TOPIC_ID]),
)
def test_written_dead_letter_headers_are_valid(
    letter: DeadLetter, time_s: float, value_bytes: int, topic_id: str | None
) -> None:
    """Whatever the reason, the time, the size and the topic, the headers pass their schema."""
    raw = replace(RAW, value=bytes(value_bytes), headers=(("x", None),), topic_id=topic_id)
    encoder = encoder_of(max_dead_letter_bytes=8192, clock=lambda: time_s)
    headers = encoder.outgoing(finished(raw, letter)).headers
    written = {name: None if value is None else value.decode() for name, value in headers}
    VALIDATORS["dead-letter-headers.v1"].validate(written)


def test_constants_of_code_and_schemas_are_the_same() -> None:
    """Bounds, stages and the namespace stand in both, and must not drift apart."""
    dead_letter = schema("dead-letter-headers.v1")["properties"]
    properties = schema("article.v1")["properties"]
    assert {"id": MAX_ID_CHARS, **MAX_CHARS} == {
        name: each["maxLength"] for name, each in properties.items() if "maxLength" in each
    }
    assert dead_letter["enricher.dlq.error.message"]["maxLength"] == MAX_REASON_BYTES
    assert dead_letter["enricher.dlq.stage"]["enum"] == list(get_args(get_type_hints(DeadLetter)["stage"]))
    assert str(RECORD_NAMESPACE) in schema(HEADERS[0])["properties"]["enricher.record.id"]["description"]


def test_readme_names_everything_in_the_contracts() -> None:
    """A header or article field that the README does not explain would have to be guessed."""
    readme = "".join((SCHEMAS / page).read_text(encoding="utf-8") for page in ("README.md", "articles.md"))
    named = [name for schema_name in HEADERS for name in schema(schema_name)["properties"]]
    named += [*schema("article.v1")["properties"], str(RECORD_NAMESPACE), *(f"{name}.schema.json" for name in NAMES)]
    assert [name for name in named if name not in readme] == []
