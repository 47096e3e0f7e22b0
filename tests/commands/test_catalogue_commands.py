"""`enricher catalogue check` shows what a worker would take or refuse; `try` is executed with its page."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from commands.cli_runner import article, json_lines, run

from enricher.worker.wiring import loaded_tasks
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of


def test_check_shows_names_that_single_out_no_entry(tmp_path: Path) -> None:
    """Names of several entries, those that are equal only after folding, and short ones."""
    entries = [
        {"id": "a", "name": "Apple Inc.", "label": "ORG"},
        {"id": "b", "name": "Apple", "label": "ORG"},
        {"id": "c", "name": "John Smith"},
        {"id": "d", "name": "JOHN SMITH", "aliases": ["JS"]},
    ]
    file = tmp_path / "names.jsonl"
    file.write_bytes(b"\n".join(map(orjson.dumps, entries)))
    result = run("catalogue", "check", str(file))
    assert 0 == result.exit_code
    shown = result.stdout.splitlines()
    assert shown[0].startswith("4 entries with 5 names; generation 0; sha256:")
    assert [
        "labels: ORG",
        "names of several entries: 1",
        "  john smith (c, d)",
        "names of several entries after folding alone: 1",
        "  apple (a, b)",
        "names of at most 2 characters: 1",
        "  JS (d)",
    ] == shown[1:]


def test_try_shows_what_only_the_catalogue_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another column, and counted apart."""
    file = tmp_path / "names.jsonl"
    file.write_bytes(b'{"id": "q1", "name": "zeitung", "label": "ORG"}')
    articles = json_lines(article("1", "", "die zeitung"), article("2", "", "zeitungen"))
    monkeypatch.setattr(loaded_tasks, "load_tasks", lambda settings, **_: tasks_of(settings, stub_model(StubEngine())))
    shown = run("catalogue", "try", "--text", str(file), stdin=articles)
    assert "1\tORG\tzeitung\tq1 (only)\tq1:name\tin the text\n" == shown.stdout
    assert "ORG: 0 matched, 0 ambiguous, 0 unmatched, 1 found" in shown.stderr
