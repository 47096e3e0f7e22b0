"""Records of two tasks, with their version as a field, in a real index: what a worker writes is what a search finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from commands.cli_runner import article, run
from commands.model_app import tiny_model
from indexing.stage import Stage, make_stage
from kafka.harness import Sent, as_sent, headers_of, publish, worker
from support.heads import class_model
from support.patience import PATIENCE_S
from support.reading import read_all

from tools.kafka import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("shared_models")]

LABELS = ("economy", "politics", "sports")


@pytest.fixture
def stage(broker: Cluster, search_url: str, tmp_path: Path) -> Stage:
    """Topics, a real index, and the settings of workers with entities and classes."""
    ner = tiny_model(tmp_path / "ner")
    tasks = {
        "names": {"source": str(ner)},
        "topics": {"source": str(class_model(ner, tmp_path / "topics", LABELS, scale=3.0))},
    }
    return make_stage(
        broker.bootstrap_servers,
        search_url,
        ENRICHER_TASKS=json.dumps(tasks),
        ENRICHER_MODEL__PRECISION="fp32",
        ENRICHER_OUTPUT__VERSION="true",
        ENRICHER_MODEL__GENERATION="3",
    )


def test_classes_and_versions_of_records_can_be_searched(stage: Stage, search_url: str) -> None:
    """Beside an update and a deletion; the field is the version that the index compares."""
    assert 0 == run("index", "template", "--install", env=stage.environment).exit_code
    articles = [article(str(number), body=f"Ana Ribeiro {number} lives in Lisbon.") for number in range(6)]
    inputs = [*map(as_sent, articles), as_sent(articles[0] | {"title": "Porto"}), Sent(b"1", None)]
    publish(stage.topics.bootstrap_servers, stage.topics.input, inputs)
    with worker(stage.environment, "--until-caught-up") as process:
        assert 0 == process.wait(PATIENCE_S)
    with stage.indexer("--until-caught-up") as indexer:
        assert 0 == indexer.wait(PATIENCE_S)
    verified = run("index", "verify", env=stage.environment)
    assert 0 == verified.exit_code, verified.output

    with httpx2.Client(base_url=search_url, timeout=PATIENCE_S) as client:

        def found(query: dict[str, Any]) -> dict[str, Any]:
            body = {"query": query, "version": True, "size": 100}
            answer = client.post(f"/{stage.environment['ENRICHER_INDEX__NAME']}/_search", json=body)
            return {hit["_id"]: hit for hit in answer.json()["hits"]["hits"]}

        held = found({"match_all": {}})
        written = read_all(stage.topics.bootstrap_servers, stage.topics.output)
        newest = {(each.key() or b"").decode(): int(headers_of(each)["enricher.version"] or b"") for each in written}
        assert newest.keys() - {"1"} == held.keys()
        for name, hit in held.items():
            assert newest[name] == hit["_version"] == hit["_source"]["version"]
            assert 3 == hit["_source"]["version"] % 4096, "the generation"
            [chosen] = hit["_source"]["classifications"]
            is_it = {"term": {"classifications.label": chosen["label"]}}
            assert name in found({"nested": {"path": "classifications", "query": is_it}})
            assert name in found({"range": {"version": {"gte": newest[name], "lte": newest[name]}}})
