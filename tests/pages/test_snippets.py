"""Every command and snippet in the Markdown pages is executed, or says why not."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml
from deploy.chart_rendering import check_custom
from pages.executed import FOUND, executed, furnish, pages_with, run_commands, run_program, text_of
from pages.snippets import Snippet
from support.offenders import assert_none
from support.topics import Topics

from deploy.chart.generator.layout import CHART
from enricher.worker.settings import Settings
from enricher.workshop.gate.gold import read_gold


def test_every_snippet_is_executed_or_says_why_not() -> None:
    """A block in a language that nothing executes needs a reason, and a test that is named reads the page."""
    assert len(executed("sh")) > 10
    assert_none(f"{each.place}: {each.objection}" for each in FOUND if each.objection)


@pytest.mark.parametrize(
    ("language", "mark"),
    [("", ""), ("text", ""), ("sh", "not run:"), ("sh", "run by tests/gone.py"), ("sh", "run by tests/test_docs.py")],
)
def test_a_snippet_without_a_reason_is_found(language: str, mark: str) -> None:
    """The negative control: no reason, an empty one, a test that is not there, and one that does not read the page."""
    assert Snippet("deploy/no-such-page.md", 1, language, "", mark).objection


def read_jsonl(text: str, folder: Path) -> None:
    """Gold sets are the only lines of JSON in the pages."""
    file = folder / "gold.jsonl"
    file.write_text(text, "utf-8")
    assert read_gold(file).texts


def read_toml(text: str, _folder: Path) -> None:
    """As settings of a worker, which refuse unknown names."""
    Settings.model_validate(tomllib.loads(text))


def read_yaml(text: str, _folder: Path) -> None:
    """As a resource of Kubernetes, or else as values of the chart, over its defaults."""
    found = yaml.safe_load(text)
    if "apiVersion" in found:
        check_custom(found)
        return
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(merged(values, found))


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Values over others, as Helm merges them."""
    both = {
        name: merged(under[name], value) if isinstance(value, dict) and isinstance(under.get(name), dict) else value
        for name, value in over.items()
    }
    return {**under, **both}


READERS: dict[str, Callable[[str, Path], object]] = {
    "json": lambda text, _folder: orjson.loads(text),
    "jsonl": read_jsonl,
    "toml": read_toml,
    "yaml": read_yaml,
}


@pytest.mark.parametrize("snippet", executed(*READERS), ids=lambda each: each.place)
def test_data_in_the_pages_can_be_read_by_what_it_is_for(snippet: Snippet, tmp_path: Path) -> None:
    """Settings by the worker, values by the chart, resources by their schema, gold sets by the gate."""
    READERS[snippet.language](snippet.text, tmp_path)


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_of_a_page_run_one_after_the_other(page: str, topics: Topics, tmp_path: Path) -> None:
    """In one shell, in the page's order; the first failure ends it."""
    run_commands(page, topics, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_programs_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    """In one interpreter, in the page's order."""
    program = text_of(page, "python")
    furnish(tmp_path, program)
    run_program(program, tmp_path)
