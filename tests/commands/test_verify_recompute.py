"""Recomputing records leaves nothing behind, however many batches of articles there are."""

from __future__ import annotations

import threading
from typing import Any

import orjson
import pytest

from enricher.worker.records import Partition, RawRecord
from enricher.worker.settings import Settings
from enricher.worker.wiring.memory_runs import recompute
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of


def recomputed(inputs: list[RawRecord]) -> list[bytes | None]:
    """The values of the records of these inputs, by the settings in force."""
    return recompute(Settings(), tasks_of(Settings(), stub_model(StubEngine())), inputs)


def raw(value: bytes, **fields: Any) -> RawRecord:  # noqa: ANN401  what a record has
    """A record of the input topic."""
    return RawRecord(Partition("articles", 3), 1042, value=value, **{"key": None, **fields})


def test_recomputing_leaves_no_thread_behind() -> None:
    """Each batch has a worker between two files; its threads, the watchdog's among them, end with it."""
    before = set(threading.enumerate())
    for article_id in ("1", "2"):
        (record,) = recomputed([raw(orjson.dumps({"id": article_id, "body": "It rained all day."}))])
        assert article_id == orjson.loads(record or b"{}")["id"]
    assert [] == [thread.name for thread in threading.enumerate() if thread not in before and thread.name == "watchdog"]


def test_records_are_recomputed_with_their_keys_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value whose id is beside it is no article alone, and an input that is no article has no record.

    Values are not lines: a publisher may indent its JSON, and the record repeats the whole article as it is.
    """
    monkeypatch.setenv("ENRICHER_ARTICLES__FIELDS", '{"id": "header:name", "body": "/text"}')
    monkeypatch.setenv("ENRICHER_OUTPUT__ARTICLE", "whole")
    document = b'{\n  "text": ["It rained",\r\n "all day."]\n}'
    named = raw(document, headers=(("name", b"a"), ("name", b"b")))
    values = recomputed([raw(document, key=b"k"), named, named])
    assert [None, "b", "b"] == [value and orjson.loads(value)["id"] for value in values]
