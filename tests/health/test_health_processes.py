"""The parent's health: its own loop, the processes' metrics as one exposition, and their pages on its port."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

import pytest
from health.looking import FACTS, LOCALHOST, get, health_of, served, serving, view_of
from health.test_health_page import CONTRAST, in_a_browser
from loop.fake_clock import FakeClock
from loop.world import LONG, SHORT, World
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from enricher.worker.health.children import ask, ask_all, merge
from enricher.worker.health.page import PARENT_PAGE
from enricher.worker.health.processes import ProcessesHealth
from enricher.worker.health.routes import ProbeResult, Reply, Request, page_routes, probe_routes
from enricher.worker.health.worker_health import WorkerHealth
from enricher.worker.processes import ProcessState, Supervisor
from tools.status_page.browser import Browser

FIRST = """# HELP articles_total Articles.
# TYPE articles_total counter
articles_total{outcome="enriched"} 3.0
articles_total{outcome="dead_letter"} 1.0
# HELP wait_seconds Waits.
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.1"} 1.0
wait_seconds_bucket{le="+Inf"} 2.0
wait_seconds_count 2.0
wait_seconds_sum 0.5
"""
SECOND = (
    FIRST.replace("3.0", "5.0") + '# HELP age_seconds Age.\n# TYPE age_seconds gauge\nage_seconds{topic="a\\"b"} 7.5\n'
)


@dataclass(slots=True)
class Parent:
    """A supervisor at one moment."""

    processes: dict[int, ProcessState]
    ports: dict[int, int] = field(default_factory=dict)
    ready: bool = False
    started: bool = False
    stopping: bool = False
    turn_age_s: float = 0.2
    first_pid: int = 1_000
    report_age_s: float = 0.5

    def states(self) -> dict[int, ProcessState]:
        """As set by the test."""
        return self.processes

    def pids(self) -> dict[int, int]:
        """Invented process ids."""
        return {number: self.first_pid + number for number in self.ports}

    def report_ages_s(self) -> dict[int, float]:
        """The same of all running processes, and much more of silent ones."""
        ages_s = {ProcessState.SILENT: 60.0}
        return {number: ages_s.get(self.processes[number], self.report_age_s) for number in self.pids()}

    def health_ports(self) -> dict[int, int]:
        """As set by the test."""
        return self.ports


def parent_health(parent: Parent, clock: FakeClock | None = None) -> ProcessesHealth:
    """Health of a parent whose broker assigns partitions again after 20 s."""
    return ProcessesHealth(FACTS, cast("Supervisor", parent), handed_out_s=20.0, clock=clock or time.monotonic)


def worker_health() -> WorkerHealth:
    """Health of a process that has published two articles."""
    world = World()
    process = world.start()
    process.source.open(process.worker)
    health = health_of(world.clock)
    health.show(view_of(process))
    world.put(SHORT, LONG)
    world.steps(process, until=world.done)
    world.clock.sleep(2.0)
    health.sample()
    return health


@pytest.fixture
def family() -> Iterator[tuple[Parent, int]]:
    """A parent of two processes, and its port."""
    parent = Parent({0: ProcessState.READY, 1: ProcessState.READY}, ready=True, started=True)
    with ExitStack() as stack:
        for number in (0, 1):
            parent.ports[number] = stack.enter_context(served(worker_health()))
        health = parent_health(parent)
        yield (
            parent,
            stack.enter_context(
                serving({**page_routes(health, PARENT_PAGE), **probe_routes(health), **health.routes()})
            ),
        )


def test_every_sample_gets_the_number_of_its_process() -> None:
    """Each family appears once with the samples of all processes, as the client library's parser reads it."""
    body, content_type = merge({"0": FIRST, "1": SECOND}, "")
    assert content_type.startswith("text/plain")
    families = {family.name: family for family in plain(body.decode())}
    assert {"articles", "wait_seconds", "age_seconds"} == families.keys()
    assert [("counter", 4), ("histogram", 8)] == [
        (families[name].type, len(families[name].samples)) for name in ("articles", "wait_seconds")
    ]
    counts = {
        (sample.labels["process"], sample.labels["outcome"]): sample.value for sample in families["articles"].samples
    }
    assert {("0", "enriched"): 3, ("1", "enriched"): 5, ("0", "dead_letter"): 1, ("1", "dead_letter"): 1} == counts
    assert 'a"b' == families["age_seconds"].samples[0].labels["topic"]


def test_all_of_it_can_be_had_as_openmetrics() -> None:
    """If the scraper asks for OpenMetrics, it gets it; that parser is stricter."""
    body, content_type = merge({"0": FIRST, "1": SECOND}, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
    assert {"articles", "wait_seconds", "age_seconds"} == {family.name for family in families}


def test_without_processes_the_exposition_is_empty_and_valid() -> None:
    """An early scrape is no error."""
    assert b"" == merge({}, "")[0]


def test_who_does_not_answer_is_left_out() -> None:
    """Of a closed port, a server error and a good answer, only the last counts."""

    def broken(_request: Request) -> Reply:
        raise ValueError

    with served(worker_health()) as port, serving({"/livez": broken}) as bad, serving({}) as empty:
        assert {2} == ask_all({0: bad, 1: empty, 2: port}, "/livez").keys()
        gone = port
    assert ask(gone, "/livez") is None
    assert {} == ask_all({}, "/livez")


STARTING, READY, _, _, DEAD, SILENT = ProcessState


@pytest.mark.parametrize(
    ("parent", "probe", "ok", "reason"),
    [
        (Parent({0: STARTING}), "liveness", True, "the parent's loop turns"),
        (Parent({0: STARTING}, turn_age_s=31.0), "liveness", False, "the parent's loop has not turned for 31 s"),
        (Parent({0: READY, 1: STARTING}), "readiness", False, "1 ready, 1 starting"),
        (Parent({0: READY, 1: STARTING}), "startup", False, "1 ready, 1 starting"),
        (Parent({0: READY}, ready=True, started=True), "readiness", True, "1 ready"),
        (Parent({0: READY, 1: SILENT}, started=True), "readiness", False, "1 ready, 1 silent"),
        (Parent({0: SILENT, 1: SILENT}, started=True), "liveness", True, "the parent's loop turns"),
        (Parent({0: DEAD}, started=True), "startup", True, "started"),
        (Parent({0: DEAD}, started=True), "readiness", False, "1 dead"),
        (Parent({0: READY}, ready=True, stopping=True), "readiness", False, "draining"),
    ],
)
def test_the_parents_probes(parent: Parent, probe: str, reason: str, *, ok: bool) -> None:
    """The parent restarts dead and silent processes, so liveness depends only on its own loop."""
    assert ProbeResult(ok, reason) == getattr(parent_health(parent), probe)()


def test_the_parent_serves_everything_on_one_port(family: tuple[Parent, int]) -> None:
    """It serves probes, merged metrics, the status of all, and each process's page, status and metrics."""
    _, port = family
    assert [200, 200, 200] == [get(port, path).status for path in ("/livez", "/readyz", "/startupz")]
    assert {"0", "1"} == {
        sample.labels["process"] for family in plain(get(port, "/metrics").text) for sample in family.samples
    }
    status = get(port, "/status.json").json
    assert [(0, "ready", 2), (1, "ready", 2)] == [
        (each["number"], each["state"], each["status"]["totals"]["published"]) for each in status["processes"]
    ]
    for number in (0, 1):
        assert 2 == get(port, f"/process/{number}/status.json").json["totals"]["published"]
        assert "enricher_articles_total" in get(port, f"/process/{number}/metrics").text
        assert get(port, f"/process/{number}/").headers["Content-Security-Policy"]
    assert 404 == get(port, "/process/2/").status


def test_a_process_that_is_not_there_is_a_line_in_the_table(family: tuple[Parent, int]) -> None:
    """The others are shown as before."""
    parent, port = family
    del parent.ports[1]
    parent.processes[1] = ProcessState.DEAD
    first, second = get(port, "/status.json").json["processes"]
    assert first["status"]["totals"]["published"] == 2
    assert ("dead", None, None) == (second["state"], second["pid"], second["status"])
    assert (502, "process 1 does not answer\n") == (
        get(port, "/process/1/status.json").status,
        get(port, "/process/1/metrics").text,
    )


def test_a_silent_process_shows_the_age_of_its_last_report_and_no_older_numbers(family: tuple[Parent, int]) -> None:
    """It would not answer, so nobody waits for it: its metrics are gone but for that age."""
    parent, port = family
    parent.processes[1] = ProcessState.SILENT
    first, second = get(port, "/status.json").json["processes"]
    assert ("ready", 0.5, True) == (first["state"], first["report_age_s"], bool(first["status"]))
    assert ("silent", 1_001, 60.0, None) == (second["state"], second["pid"], second["report_age_s"], second["status"])
    samples = [sample for family in plain(get(port, "/metrics").text) for sample in family.samples]
    assert {"enricher_process_report_age_seconds"} == {
        sample.name for sample in samples if sample.labels["process"] == "1"
    }
    assert {"0": 0.5, "1": 60.0} == {
        sample.labels["process"]: sample.value
        for sample in samples
        if sample.name == "enricher_process_report_age_seconds"
    }
    assert 502 == get(port, "/process/1/status.json").status


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 1240])
def test_the_parents_page_shows_all_processes(
    family: tuple[Parent, int], browser: Browser, width: int, *, dark: bool
) -> None:
    """Each has a row, a chart and a link to its own page."""
    browser.size(width, dark=dark)
    browser.open(f"http://{LOCALHOST}:{family[1]}/")
    browser.until(lambda: browser.value("document.title") == "worker-0: 2 processes", "the first numbers")
    assert [2, 2] == browser.value(
        "['#processes tr', '#charts svg'].map(each => document.querySelectorAll(each).length)"
    )
    assert "4" == browser.value("document.querySelector('[data-show=\"all.published\"]').textContent")
    assert width >= browser.value("document.documentElement.scrollWidth")
    browser.until(lambda: browser.value("document.getAnimations().length") == 0, "colours have changed")
    assert [] == browser.value(CONTRAST)
    assert [] == browser.console
    browser.open(browser.value("document.querySelector('#processes a').href"))
    browser.until(
        lambda: browser.value("document.title") in {"worker-0: working", "worker-0: idle"}, "the page of a process"
    )
    assert [] == browser.console
