"""Every command and snippet in the Markdown pages is executed, or says why not."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deploy.chart_rendering import check_custom
from kafka.harness import as_sent, publish, short_articles
from pages.shell import run, run_page
from pages.snippets import Snippet, snippets
from support.heads import class_model
from support.offenders import assert_none
from support.operating import write
from support.topics import PARTITIONS, Topics
from test_docs import ROOT

from deploy.chart.generator.layout import CHART
from enricher.worker.settings import Settings
from enricher.workshop.gate.gold import read_gold
from tools.topics import make_topics

EMBEDDED = ROOT / "enricher" / "models" / "newswire-minilm"
FOUND = list(snippets())


def executed(*languages: str) -> list[Snippet]:
    """The blocks in these languages that this file executes."""
    return [each for each in FOUND if each.executed and each.language in languages]


def pages_with(language: str) -> list[str]:
    """The pages that have such blocks."""
    return list(dict.fromkeys(each.page for each in executed(language)))


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


def furnish(folder: Path) -> None:
    """The files and models that the pages name."""
    articles = short_articles(6)
    (folder / "articles.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in articles))
    pq.write_table(pa.Table.from_pylist(articles), folder / "articles.parquet")
    (folder / "secret").write_text("user:password")
    (folder / "models").mkdir()
    (folder / "models" / "mine").symlink_to(EMBEDDED)
    class_model(EMBEDDED, folder / "models" / "topics", ["politics", "sport"])


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_of_a_page_run_one_after_the_other(
    page: str, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In one shell, in the page's order, on a real broker with some records and a dead letter; the first failure ends it."""
    furnish(tmp_path)
    publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(6)))
    write(topics.bootstrap_servers, topics.input, [{"partition": 0, "value": b"no JSON"}])
    commands = "\n".join(each.text for each in executed("sh") if each.page == page)
    if "enricher index run" in commands:
        make_topics(topics.bootstrap_servers, [f"{topics.output}.index-dead-letters"], PARTITIONS)
    for ours, real in {
        "broker-1:9092,broker-2:9092": topics.bootstrap_servers,
        "broker-1:9092": topics.bootstrap_servers,
        "--topic articles": f"--topic {topics.input}",
        "_TOPIC=": f"_TOPIC={topics.group}.",  # names of their own, so that no test meets another
        "GROUP_ID=": f"GROUP_ID={topics.group}.",
        "--group ": f"--group {topics.group}.",
        "--into ": f"--into {topics.group}.",
        "/models/next": str(EMBEDDED),
        "/run/secrets/registry": str(tmp_path / "secret"),
    }.items():
        commands = commands.replace(ours, real)
    for fixture, urls in {
        "registry": "https://registry-1:8081,https://registry-2:8081",
        "opensearch": "https://search-1:9200,https://search-2:9200",
    }.items():
        if urls in commands:
            commands = commands.replace(urls, request.getfixturevalue(fixture).url)
    if "dead-letters" in commands or "labels" in commands or "lag" in commands:
        commands = f"enricher run\n{commands}"
    run_page(commands, tmp_path, topics.environment)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_programs_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    """In one interpreter, in the page's order."""
    furnish(tmp_path)
    program = "\n".join(each.text for each in executed("python") if each.page == page)
    run([sys.executable, "-"], program, tmp_path, {})
