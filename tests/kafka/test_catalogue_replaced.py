"""A catalogue that is replaced under load, with two workers on a real broker: each record is of one version."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import orjson
import pytest
from kafka.harness import as_sent, assert_exactly_once, headers_of, publish, short_articles
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics

from enricher.worker.files import live_catalogue
from enricher.worker.loop.loop import Worker
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import load_settings
from enricher.worker.wiring.workers import kafka_worker
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import change, tasks_of

pytestmark = pytest.mark.broker


def write(path: Path, words: set[str], generation: int) -> None:
    """Replace the catalogue by one whose ids tell its generation."""
    labels = ["PER", "ORG", "LOC", "MISC"]
    entries = [
        {"id": f"{generation}-{number}", "name": word, "labels": labels} for number, word in enumerate(sorted(words))
    ]
    new = path.with_suffix(".new")
    new.write_bytes(b"\n".join(map(orjson.dumps, [{"generation": generation, "entries": len(entries)}, *entries])))
    new.replace(path)


def test_a_catalogue_is_replaced_under_two_workers(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No record without a version, none with ids of both, and the version in the header counts the generation.

    Names are found in the text too.
    """
    monkeypatch.setattr(live_catalogue, "LOOK_S", 0.05)
    articles = short_articles(600)
    path = tmp_path / "names.jsonl"
    words = {word for each in articles for word in f"{each['title']} {each['body']}".split() if word.isalnum()}
    write(path, words, 2)
    catalogue = {"ENRICHER_CATALOGUE__PATH": str(path), "ENRICHER_CATALOGUE__FIND": "text"}
    for name, value in {**topics.environment, **catalogue}.items():
        monkeypatch.setenv(name, value)
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    with Watchdog() as watchdog:
        workers = list[Worker]()
        for number in range(2):
            settings = change(
                load_settings(), kafka={"instance": f"worker-{number}"}, worker={"max_articles_per_second": 100}
            )
            tasks = tasks_of(settings, stub_model(StubEngine()))
            workers.append(kafka_worker(settings, tasks, guard=watchdog.guard, until_caught_up=True))
        threads = [threading.Thread(target=each.run) for each in workers]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(each.counters.records for each in workers) > 100, PATIENCE_S, "a hundred records")
        write(path, words, 7)
        for thread in threads:
            thread.join()
    records = read_all(topics.bootstrap_servers, topics.output)
    assert_exactly_once(records, places)
    seen: Counter[int] = Counter()
    for record in records:
        value = orjson.loads(record.value() or b"")
        generation = value["catalogue"]["generation"]
        seen[generation] += 1
        assert int(headers_of(record)["enricher.version"] or 0) & 4_095 == generation
        ids = {candidate["id"].partition("-")[0] for each in value["entities"] for candidate in each.get("ids", ())}
        assert ids <= {str(generation)}
        assert all(each["id"].startswith(f"{generation}-") for each in value["entities"] if "id" in each)
        assert any("source" in each for each in value["entities"])
    assert {2, 7} == seen.keys()
    assert sum(each.counters.links.total() for each in workers) > len(records)
