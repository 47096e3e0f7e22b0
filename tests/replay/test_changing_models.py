"""The page about changing the model, executed as it stands while articles are being published."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from kafka.harness import as_sent, assert_exactly_once, publish, short_articles, worker
from replay.sourced_stub_worker import SOURCED_STUB_WORKER
from support.forked import Forked
from support.logs import new_log
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "replay.md"
ENRICHER = f'#!/bin/sh\nexec "{sys.executable}" "{SOURCED_STUB_WORKER}" "$@"\n'
"""With a stub for the model: each start of the real one takes three seconds of a processor."""


def commands_of_the_page() -> list[str]:
    """The blocks of commands of its section about the model, in order."""
    section = PAGE.read_text("utf-8").partition("\n## Changing the model\n")[2]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@contextmanager
def shell(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell that reads commands; what it started in the background ends with it."""
    program = folder / "bin" / "enricher"
    program.parent.mkdir()
    program.write_text(ENRICHER, "utf-8")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    modules = os.pathsep.join(str(ROOT / each) for each in ("scripts", "", "tests"))
    with new_log("page").open("ab") as log:
        opened = subprocess.Popen(
            ["/bin/bash", "-eu"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **environment, "PATH": path, "PYTHONPATH": modules},
            text=True,
            bufsize=1,
            start_new_session=True,
        )
    try:
        yield opened
    finally:
        os.killpg(opened.pid, signal.SIGKILL)
        opened.communicate()


def run(opened: subprocess.Popen[str], commands: str) -> None:
    """Run these to their end; fails if one of them does."""
    assert opened.stdin
    assert opened.stdout
    opened.stdin.write(f"{commands}\necho 'that was it'\n")
    for line in opened.stdout:
        if line == "that was it\n":
            return
    raise AssertionError(f"a command failed (code {opened.wait()}): {commands}")


@pytest.mark.broker
def test_the_page_takes_every_article_from_one_model_to_the_next(topics: Topics, tmp_path: Path) -> None:
    """Before, while and after the replay runs, articles come; the topics of both models end up with each of them once."""
    number = 0
    places = {}

    def publish_some() -> None:
        nonlocal number
        number += 1
        sent = [as_sent(each | {"id": f"{number}-{each['id']}"}) for each in short_articles(12, seed=number)]
        places.update(publish(topics.bootstrap_servers, topics.input, sent))

    topic, group = f"{topics.output}.v2", f"{topics.group}.v2"
    replaced = {"entities.v2": topic, "enricher.v2": group}
    with worker(topics.environment, stub=True) as live, shell(topics.environment, tmp_path) as opened:
        for block in commands_of_the_page():
            publish_some()
            commands = block
            for name, own in replaced.items():
                commands = commands.replace(name, own)
            if "enricher lag" in commands:
                wait_until(lambda: len(read_all(topics.bootstrap_servers, topic)) == len(places), PATIENCE_S, "no lag")
            run(opened, commands)
        wait_until(
            lambda: len(read_all(topics.bootstrap_servers, topics.output)) == len(places),
            PATIENCE_S,
            "the live workers",
        )
        live.terminate()
        assert 0 == live.wait(PATIENCE_S)
    for output in (topics.output, topic):
        assert_exactly_once(read_all(topics.bootstrap_servers, output), places)
    values = [message.value() or b"" for message in read_all(topics.bootstrap_servers, topic)]
    assert {"next"} == {orjson.loads(value)["model"]["name"] for value in values}
    assert sorted(values) == sorted(lines_of_enrich([sent.value or b"" for sent in places.values()], tmp_path))


def lines_of_enrich(articles: list[bytes], folder: Path) -> list[bytes]:
    """What `enricher enrich` makes of these with the next model: the other way into the same pipeline."""
    written, lines = folder / "articles.jsonl", folder / "records.jsonl"
    written.write_bytes(b"\n".join(articles))
    command = [SOURCED_STUB_WORKER, "-q", "enrich", str(written), "--out", str(lines)]
    with Forked(command, {**os.environ, "ENRICHER_MODEL__SOURCE": "/models/next"}) as process:
        assert 0 == process.wait(PATIENCE_S)
    return lines.read_bytes().splitlines()
