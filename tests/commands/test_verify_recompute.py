"""Recomputing records leaves nothing behind, however many batches of articles there are."""

from __future__ import annotations

import threading

import orjson
import pytest

from enricher.commands import verify
from enricher.settings import Settings
from tools.chaos.stub import StubEngine, stub_model


def test_recomputing_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch has a worker between two files; its threads, the watchdog's among them, end with it."""
    monkeypatch.setattr(verify, "load_model", lambda _settings: stub_model(StubEngine()))
    recomputed = verify.recompute_with(Settings())
    before = set(threading.enumerate())
    for article_id in ("1", "2"):
        (record,) = recomputed([orjson.dumps({"id": article_id, "body": "It rained all day."})])
        assert article_id == orjson.loads(record or b"{}")["id"]
    assert [] == [thread.name for thread in threading.enumerate() if thread not in before and thread.name == "watchdog"]
