"""`enricher catalogue check` shows what a worker would take or refuse; `try` is executed with its page."""

from __future__ import annotations

from pathlib import Path

import orjson
from commands.cli_runner import run

from enricher.errors import SettingsError


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


def test_check_refuses_what_a_worker_refuses(tmp_path: Path) -> None:
    """With the file and the line."""
    file = tmp_path / "names.jsonl"
    file.write_bytes(b'{"id": "a", "name": "x"}\n{"id": "a", "name": "y"}\n')
    result = run("catalogue", "check", str(file))
    assert isinstance(result.exception, SettingsError)
    assert "names.jsonl:2: the id of " in str(result.exception)
