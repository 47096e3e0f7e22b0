"""Batch composition does not change a result: the same articles through every bucket setting and batch size."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import orjson
import pytest

from enricher.worker.files import LineSink, LineSource
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import BatchingSettings, Settings
from enricher.worker.wiring.loaded_tasks import Model
from enricher.worker.wiring.workers import file_worker
from tools.worker_parts import load_model, tasks_of

SAMPLES = Path(__file__).resolve().parents[2] / "enricher" / "models" / "articles" / "wikinews.jsonl"
ARTICLES, BODY_CHARS = 12, 800  # two or three windows per article
WINDOW_TOKENS = 128
EDGES = ((16, 32, 48, 64, 80, 96, 112, 128), (128,), (24, 100, 128), tuple(range(8, 129, 2)))


@pytest.fixture(scope="module")
def model() -> Model:
    """The embedded model, loaded once, and warmed up for one length."""
    return load_model(Settings(batching=BatchingSettings(bucket_edges=(WINDOW_TOKENS,))))


@pytest.fixture(scope="module")
def articles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginnings of sample articles."""
    path = tmp_path_factory.mktemp("articles") / "beginnings.jsonl"
    whole = (orjson.loads(line) for line in SAMPLES.read_bytes().splitlines()[:ARTICLES])
    cut = (article | {"body": article["body"][:BODY_CHARS]} for article in whole)
    path.write_bytes(b"".join(orjson.dumps(article) + b"\n" for article in cut))
    return path


def enriched(
    model: Model, articles: Path, *, max_batch_tokens: int, bucket_edges: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The records of all articles, in order."""
    batching = BatchingSettings(
        max_window_tokens=WINDOW_TOKENS,
        overlap_tokens=32,
        max_batch_tokens=max_batch_tokens,
        bucket_edges=bucket_edges,
    )
    settings = Settings(batching=batching)
    records, reasons = io.BytesIO(), io.BytesIO()
    source = LineSource(articles)
    sink = LineSink(records, reasons, committed=source.note_committed)
    with Watchdog() as watchdog:
        file_worker(settings, tasks_of(settings, model), source, sink, guard=watchdog.guard).run()
    assert reasons.getvalue() == b""
    return [orjson.loads(line) for line in records.getvalue().splitlines()]


def without_scores(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with nothing but what must be equal to the letter."""
    return [record | {"entities": [{**entity, "score": None} for entity in record["entities"]]} for record in records]


@pytest.fixture(scope="module")
def one_by_one(model: Model, articles: Path) -> list[dict[str, Any]]:
    """What every window gives alone."""
    return enriched(model, articles, max_batch_tokens=16, bucket_edges=EDGES[0])


@pytest.mark.parametrize(
    ("batch_size", "edges"),
    [
        *zip([2, 5, 13, 64], EDGES, strict=True),
        *(pytest.param(*each, marks=pytest.mark.long) for each in zip([34, 3, 8, 21], EDGES, strict=True)),
    ],
)
def test_batches_of_any_size_and_any_buckets_give_the_same_entities(
    model: Model, articles: Path, one_by_one: list[dict[str, Any]], batch_size: int, edges: tuple[int, ...]
) -> None:
    """The same entities with the same labels in the same places; scores equal to the fourth digit, give or take one."""
    records = enriched(model, articles, max_batch_tokens=batch_size * WINDOW_TOKENS, bucket_edges=edges)
    assert without_scores(one_by_one) == without_scores(records)
    expected = [entity["score"] for record in one_by_one for entity in record["entities"]]
    scores = [entity["score"] for record in records for entity in record["entities"]]
    assert expected == pytest.approx(scores, abs=1.01e-4)
    assert len(scores) > 75
