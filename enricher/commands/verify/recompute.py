"""Recomputes records as `enricher enrich` would: the configured model, a worker between two files."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson

from enricher.app import Model, file_worker, load_model
from enricher.codec import decode_article
from enricher.errors import InvalidArticle
from enricher.files import LineSink, LineSource
from enricher.runtime.watchdog import Watchdog
from enricher.settings import Settings
from enricher.verify import Recompute


def recompute_with(settings: Settings) -> Recompute:
    """Load the configured model, and give what enriches articles with it. Raises ModelError."""
    model = load_model(settings)

    def recompute(values: Sequence[bytes]) -> list[bytes | None]:
        lines = [_line(value) for value in values]
        with tempfile.TemporaryDirectory(prefix="enricher-verify-") as folder:
            path = Path(folder) / "articles.jsonl"
            path.write_bytes(b"".join(line + b"\n" for line in lines if line is not None))
            records = iter(_enriched(settings, model, path))
        return [None if line is None else next(records) for line in lines]

    return recompute


def _line(value: bytes) -> bytes | None:
    """The article in one line, whatever its value looks like; None where it is none."""
    try:
        article = decode_article(value, max_article_chars=sys.maxsize)
    except InvalidArticle:
        return None
    return orjson.dumps({"id": article.id, "title": article.title, "body": article.body, **article.metadata})


def _enriched(settings: Settings, model: Model, path: Path) -> list[bytes | None]:
    """A record for each line of the file, in order; None where it became a dead letter."""
    records, reasons = io.BytesIO(), io.BytesIO()
    source = LineSource(path)
    sink = LineSink(records, reasons, card=model.card, committed=source.note_committed)
    with Watchdog() as watchdog:
        file_worker(settings, model, source, sink, guard=watchdog.guard).run()
    dead = {orjson.loads(reason)["offset"] for reason in reasons.getvalue().splitlines()}
    values = iter(records.getvalue().splitlines())
    total = len(dead) + records.getvalue().count(b"\n")
    return [None if number in dead else next(values) for number in range(total)]
