"""Recomputing records leaves nothing behind, however many batches of articles there are."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import orjson
import pytest

from enricher.worker.records import Partition, RawRecord
from enricher.worker.settings import Settings
from enricher.worker.wiring.memory_runs import recompute
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of


def raw(document: object, **fields: Any) -> RawRecord:  # noqa: ANN401  what a record has
    """A record of the input topic."""
    return RawRecord(Partition("articles", 3), 1042, value=orjson.dumps(document), **{"key": None, **fields})


def test_recomputing_leaves_no_thread_behind() -> None:
    """Each batch has a worker between two files; its threads, the watchdog's among them, end with it."""
    recomputed = partial(recompute, Settings(), tasks_of(Settings(), stub_model(StubEngine())))
    before = set(threading.enumerate())
    for article_id in ("1", "2"):
        (record,) = recomputed([raw({"id": article_id, "body": "It rained all day."})])
        assert article_id == orjson.loads(record or b"{}")["id"]
    assert [] == [thread.name for thread in threading.enumerate() if thread not in before and thread.name == "watchdog"]


def test_records_are_recomputed_with_their_keys_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ids are beside the value, the value alone is no article; what was no article has no record."""
    monkeypatch.setenv("ENRICHER_ARTICLES__FIELDS", '{"id": "header:name", "body": "/text"}')
    recomputed = partial(recompute, Settings(), tasks_of(Settings(), stub_model(StubEngine())))
    document = {"text": ["It rained", "all day."]}
    named = raw(document, headers=(("name", b"a"), ("name", b"b")))
    values = recomputed([raw(document, key=b"k"), named, named])
    assert [None, "b", "b"] == [value and orjson.loads(value)["id"] for value in values]


def test_a_whole_article_with_line_ends_is_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are not lines: a publisher may indent its JSON, and the record repeats it as it is."""
    monkeypatch.setenv("ENRICHER_OUTPUT__ARTICLE", "whole")
    recomputed = partial(recompute, Settings(), tasks_of(Settings(), stub_model(StubEngine())))
    indented = RawRecord(Partition("articles", 0), 0, None, b'{\n  "id": "1",\r\n  "body": "It rained."\n}')
    values = recomputed([indented, indented])
    assert ["1", "1"] == [value and orjson.loads(value)["id"] for value in values]
