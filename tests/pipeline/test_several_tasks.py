"""Several tasks on one worker, through a real broker: what records say of each, and of none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands.cli_runner import json_lines, run
from commands.model_app import tiny_model
from kafka.harness import (
    as_sent,
    assert_all_is_there_once,
    headers_of,
    publish,
    sample_articles,
    source_of,
    worker,
)
from support.heads import class_model, number_model, vector_model
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("shared_models")]

LABELS = ("economy", "politics", "sports")
ARTICLES = [{**article, "body": article["body"][:900]} for article in sample_articles()[:8]]
"""Long enough for several windows of some of them."""
EXACT = {"ENRICHER_MODEL__PRECISION": "fp32"}
WINDOWS = {"ENRICHER_BATCHING__MAX_WINDOW_TOKENS": "96", "ENRICHER_BATCHING__OVERLAP_TOKENS": "24"}

Record = dict[str, Any]
Tasks = Mapping[str, Mapping[str, object]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Heads of every kind on one encoder with random weights."""
    root = tmp_path_factory.mktemp("heads")
    ner = tiny_model(root / "ner")
    return {
        "ner": ner,
        "topics": class_model(ner, root / "topics", LABELS, scale=3.0),
        "tones": class_model(ner, root / "tones", ("glad", "grim", "dry", "loud"), multi_label=True, scale=3.0),
        "vectors": vector_model(ner, root / "vectors"),
        "mood": number_model(ner, root / "mood"),
    }


def environment_of(tasks: Tasks) -> dict[str, str]:
    """The settings of a worker with these tasks, in fp32."""
    return {**WINDOWS, **EXACT, "ENRICHER_TASKS": json.dumps(tasks)}


def through_kafka(
    topics: Topics, environment: Mapping[str, str], articles: Sequence[Mapping[str, Any]], log: Path | None = None
) -> dict[str, Record]:
    """The records of a worker between topics, by id; each article has exactly one."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    with worker({**topics.environment, **environment}, "--until-caught-up", log=log) as process:
        assert process.wait(PATIENCE_S) == 0, log and log.read_text("utf-8")
    assert_all_is_there_once(topics, places)
    records = [orjson.loads(message.value() or b"") for message in read_all(topics.bootstrap_servers, topics.output)]
    return {record["id"]: record for record in records}


def without_kafka(environment: Mapping[str, str], articles: Sequence[Mapping[str, Any]]) -> dict[str, Record]:
    """The records of a worker between files, by id."""
    Path("articles.jsonl").write_text(json_lines(*articles), "utf-8")
    result = run("enrich", "articles.jsonl", "--out", "records.jsonl", env=environment)
    assert result.exit_code == 0, (result.output, result.exception)
    records = {record["id"]: record for record in map(orjson.loads, Path("records.jsonl").read_bytes().splitlines())}
    assert len(articles) == len(records)
    return records


def assert_close(expected: Sequence[Record], found: Sequence[Record]) -> None:
    """Equal, but for the rounding of numbers."""
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            near = isinstance(value, float | list)
            assert (pytest.approx(value, abs=2e-4) if near else value) == other[name]


def test_heads_of_every_kind_on_one_encoder(topics: Topics, folders: Mapping[str, Path]) -> None:
    """Each has its answers, records have one version, and `verify` enriches them again."""
    tasks: dict[str, dict[str, object]] = {name: {"source": str(folder)} for name, folder in folders.items()}
    tasks["topics"]["pooling"] = "max"
    versioned = {"ENRICHER_OUTPUT__VERSION": "true", "ENRICHER_MODEL__GENERATION": "3"}
    records = through_kafka(topics, environment_of(tasks) | versioned, ARTICLES)
    for message in read_all(topics.bootstrap_servers, topics.output):
        assert source_of(message)[1] << 12 | 3 == orjson.loads(message.value() or b"")["version"]
        assert headers_of(message)["enricher.version"] == b"%d" % (source_of(message)[1] << 12 | 3)
    for record in records.values():
        assert ["ner", "topics", "tones", "vectors", "mood"] == [each["name"] for each in record["tasks"]]
        assert 1 == len({json.dumps(each["coverage"]) for each in record["tasks"]})
        assert {"topics"} <= {each["task"] for each in record["classifications"]} <= {"topics", "tones"}
        assert ["vectors"] == [each["task"] for each in record["embeddings"]]
        assert ["mood"] == [each["task"] for each in record["regressions"]]
    assert {"mean", "max", None} == {each.get("pooling") for each in records[ARTICLES[0]["id"]]["tasks"]}
    verified = run("verify", "--recompute", "6", "--json", env=topics.environment | environment_of(tasks))
    assert verified.exit_code == 0, verified.output


def test_a_head_per_language(topics: Topics, folders: Mapping[str, Path]) -> None:
    """Records say which tasks ran; an article without a language gets the default. Also if records repeat nothing of it."""
    tasks: Tasks = {
        "english": {"source": str(folders["topics"]), "languages": ["eng"], "default": True},
        "continental": {"source": str(folders["tones"]), "languages": ["de", "fr"]},
    }
    text = "Kari Nordmann went from Oslo to Lisbon."
    spoken = {"1": "en", "2": "en-GB", "3": "deu_Latn", "4": "__label__fr", "5": "es", "6": None}
    articles = [{"id": number, "body": text, "language": language} for number, language in spoken.items()]
    environment = environment_of(tasks) | {"ENRICHER_OUTPUT__ARTICLE": "none"}
    records = through_kafka(topics, environment, articles)
    ran = {
        number: [each["name"] for each in record["tasks"] if each["coverage"] is not None]
        for number, record in records.items()
    }
    english, continental = ["english"], ["continental"]
    assert {"1": english, "2": english, "3": continental, "4": continental, "5": [], "6": english} == ran
    for number, record in records.items():
        assert ["english", "continental"] == [each["name"] for each in record["tasks"]]
        assert {*ran[number]} >= {each["task"] for each in record["classifications"]}
        assert "language" not in record
    assert "english" in {each["task"] for each in records["1"]["classifications"]}
    assert [] == records["5"]["classifications"]


def test_without_tasks_records_name_none(folders: Mapping[str, Path]) -> None:
    """The fields are those of a record as it always was; the answers are those of the same model as a task."""
    source = str(folders["ner"])
    records = without_kafka(WINDOWS | EXACT | {"ENRICHER_MODEL__SOURCE": source}, ARTICLES)
    metadata = ["language", "source", "url", "published_at"]
    fields = ["schema_version", "id", *metadata, "entities", "model", "coverage"]
    assert all(fields == [*record] for record in records.values())
    assert all({"classifications", "embeddings", "tasks"}.isdisjoint(record) for record in records.values())
    for article_id, other in without_kafka(environment_of({"names": {"source": source}}), ARTICLES).items():
        assert_close(other["entities"], records[article_id]["entities"])
        assert other["model"] == records[article_id]["model"]
