"""Shared by the tests of the commands: running a command, articles, and plain clients that read results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson
from typer.testing import CliRunner, Result

from enricher.cli import app
from tools import topics


def run(*arguments: str, env: Mapping[str, str] | None = None, stdin: str | bytes | None = None) -> Result:
    """Run a command in this process, e.g. `run("topics", "create")`; a FatalError is the result's `exception`."""
    return CliRunner().invoke(app, list(arguments), env=dict(env or {}), input=stdin)


def unused_names(bootstrap_servers: str) -> dict[str, str]:
    """The environment of a worker with unique names of topics and group; the topics do not exist yet."""
    return topics.Topics.fresh(bootstrap_servers, "test").variables()


def article(name: str, title: str = "Lisbon", body: str = "Ana Ribeiro lives in Lisbon.") -> dict[str, Any]:
    """A small article."""
    return {"id": name, "title": title, "body": body}


def json_lines(*articles: Mapping[str, Any]) -> str:
    """The articles as the content of a file."""
    return "".join(f"{json.dumps(item)}\n" for item in articles)


def enriched_record(name: str, source: tuple[str, int, int], topic_id: str | None = None) -> dict[str, Any]:
    """The output record of `article(name)`, as arguments of `produce`; `source` is the position of the input."""
    topic, partition, offset = source
    entities = [
        {"field": "title", "start": 0, "end": 6, "text": "Lisbon", "label": "LOC", "score": 0.99},
        {"field": "body", "start": 0, "end": 11, "text": "Ana Ribeiro", "label": "PER", "score": 0.98},
    ]
    value = {
        "schema_version": 1,
        "id": name,
        "entities": entities,
        "model": {"name": "test", "digest": "0", "precision": "fp32"},
        "coverage": {"tokens": 9, "windows": 1, "truncated": False},
    }
    headers = [
        ("enricher.source.topic", topic.encode()),
        ("enricher.source.partition", str(partition).encode()),
        ("enricher.source.offset", str(offset).encode()),
    ]
    if topic_id is not None:
        headers.append(("enricher.source.topic.id", topic_id.encode()))
    return {"key": name.encode(), "value": orjson.dumps(value), "headers": headers, "partition": partition}
