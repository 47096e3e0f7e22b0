"""The command `enrich`: where it writes, and where it refuses to. What it does between is the worker's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands.support import article, json_lines, run

from enricher.errors import FatalError, SettingsError


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    """A file of one article."""
    file = tmp_path / "articles.jsonl"
    file.write_text(json_lines(article("a")), "utf-8")
    return file


@pytest.mark.parametrize(
    "options", [["-o", "articles.jsonl"], ["--dead-letters", "link"], ["-o", "x", "--dead-letters", "x"]]
)
def test_a_file_is_never_read_and_written_or_written_twice(articles: Path, options: list[str]) -> None:
    """Opening it to write would empty it, before its first line was read."""
    (articles.parent / "link").symlink_to(articles)
    with pytest.raises(SettingsError, match="must be different files"):
        raise run("enrich", "articles.jsonl", *options).exception or AssertionError("it was taken")
    assert json_lines(article("a")) == articles.read_text("utf-8")


def test_an_output_that_cannot_be_written_is_named(articles: Path) -> None:
    """With the system's reason."""
    result = run("enrich", str(articles), "-o", "nowhere/records.jsonl")
    assert isinstance(result.exception, FatalError)
    assert f"cannot write {Path('nowhere/records.jsonl')}: No such file or directory" == str(result.exception)


def test_a_dash_as_output_is_standard_output(articles: Path) -> None:
    """As it is standard input for the articles; the same device may take both outputs."""
    result = run("enrich", str(articles), "-o", "-", "--dead-letters", os.devnull)
    assert 0 == result.exit_code, result.output
    assert "a" == json.loads(result.stdout)["id"]
    assert [articles] == list(articles.parent.iterdir())
