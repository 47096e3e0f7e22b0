"""The status page: the document, and that its script reads what the server sends. No test runs the script."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from health.looking import GPU, health_of, view_of
from loop.faults import Faults
from loop.world import INVALID, LONG, POISONED, SHORT, World
from support.offenders import assert_none

from enricher.errors import TransactionTrouble
from enricher.worker.health.page import PAGE
from enricher.worker.health.samples import Interval, take_sample
from enricher.worker.health.worker_health import status_of
from enricher.worker.stats import SchemaState

MADE_BY_THE_SCRIPT = {"rebalanced", "registry_answers", "input_held_back"}
SCRIPT = PAGE.body.decode().partition("<script>")[2]


@pytest.fixture(scope="module")
def status() -> dict[str, Any]:
    """The status of a worker that has done and met everything that the page shows."""
    world = World()
    process = world.start(fault=Faults("commit", TransactionTrouble("away"), 1)).joined()
    health = health_of(world.clock)
    health.show(view_of(process, gpus=(GPU,)))
    world.put(SHORT, LONG, INVALID, POISONED, None)
    world.steps(process, until=world.done)
    health.sample()
    process.counters.tasks = {"ner": Counter(ran=4)}
    view, snapshot = view_of(process, gpus=(GPU,)), process.worker.snapshots.read()
    seen = replace(snapshot, schemas=SchemaState(away_s=12.5), lags=dict.fromkeys(process.tracker.partitions, 7))
    now = take_sample(process.worker.counters, seen, 0.0, 0.0)
    return {**health.status(), **status_of(view, seen, now, Interval(now, now))}


def has(status: object, path: Sequence[str]) -> bool:
    """Whether the status has this part."""
    for name in path:
        if not isinstance(status, dict) or name not in status:
            return False
        status = status[name]
    return True


def names_in(part: object) -> Iterator[str]:
    """The names of all fields in a part of the status."""
    if isinstance(part, dict):
        yield from part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from names_in(each)


def test_every_place_of_the_document_shows_a_part_of_the_status(status: dict[str, Any]) -> None:
    """One that there is, or one that the script makes."""
    named = set(re.findall(r'data-(?:show|most)="([^"]+)"', PAGE.body.decode()))
    assert len(named) > 30
    assert_none(name for name in named - MADE_BY_THE_SCRIPT if not has(status, name.split(".")))


def test_the_script_reads_what_the_server_sends(status: dict[str, Any]) -> None:
    """Fields by their names, also of the rows of tables, and the columns of the charts."""
    fields = set(re.findall(r"\b(?:status|registry|model|worker|gpu|each)\.(\w+)", SCRIPT))
    unpacked = re.findall(r"\(\{([\w:, ]+)\}\)", SCRIPT)
    fields |= {name.partition(":")[0].strip() for names in unpacked for name in names.split(",")}
    columns = set(re.findall(r"\['([a-z]\w+)', '", SCRIPT))
    made = MADE_BY_THE_SCRIPT | {"title", "lines", "as", "top", "colour", "text", "json"}  # of charts, and a path
    assert {"dead_letters", "used_bytes", "skipped", "waiting_for_schemas", "away_s", "recovered"} <= fields
    assert_none(sorted(fields - made - set(names_in(status))))
    assert len(columns) > 10
    assert_none(sorted(columns - {*status["history"]["columns"]}))


class Document(HTMLParser):
    """The tags of the page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(PAGE.body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.append((tag, dict(attrs)))


def test_it_can_be_read_without_eyes_and_without_a_mouse() -> None:
    """A language, a first heading, headings of sections, headers of columns, names of scrolling tables; still if asked."""
    tags = Document().tags
    ids = {each["id"] for _, each in tags if "id" in each}
    assert [{"lang": "en"}] == [each for tag, each in tags if tag == "html"]
    assert 1 == len([tag for tag, _ in tags if tag == "h1"])
    assert all(each["aria-labelledby"] in ids for tag, each in tags if tag == "section")
    assert all("scope" in each for tag, each in tags if tag == "th")
    scrolling = [each for _, each in tags if each.get("class") == "scroll"]
    assert scrolling
    assert all((each["tabindex"], each["role"]) == ("0", "region") for each in scrolling)
    assert "prefers-reduced-motion" in PAGE.body.decode()


def test_the_document_names_no_other_place() -> None:
    """No address in it but its own icon's and the name of SVG; no frame, no import, no style or handler in an attribute."""
    text = PAGE.body.decode().replace("http://www.w3.org/2000/svg", "")
    words = ["http:", "https:", "//cdn", "@import", "url(", "<iframe", "innerHTML", "eval(", " style=", " onclick="]
    assert_none(word for word in words if word in text)
