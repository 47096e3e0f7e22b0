"""The status page: what its document says without a browser, and what only a browser shows.

A browser alone runs the script, so it tells whether the numbers arrive, the charts are drawn, an absence is noticed, and
whether colours and widths fit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from health.looking import GPU, LOCALHOST, get, health_of, served, serving, view_of
from loop.world import INVALID, LONG, POISONED, SHORT, World
from support.browser import Browser, chromium
from support.offenders import assert_none

from enricher.worker.health.page import PAGE
from enricher.worker.health.routes import Reply, Request, page_routes
from enricher.worker.health.samples import EVERY_S
from enricher.worker.health.worker_health import WorkerHealth
from enricher.worker.records.reasons import OTHER

_NO_CHROMIUM = pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: apt install chromium)")


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test as one for a browser, which `--quick` does not start."""
    marked: Callable[..., None] = pytest.mark.slow(_NO_CHROMIUM(test))
    return marked


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of this file."""
    program = chromium()
    assert program is not None
    with Browser(program) as browser:
        yield browser


CHARTS = 8
DRAWN_BY_THE_SCRIPT = {"rebalanced", "registry_answers", "input_held_back"}
CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")


def busy_health() -> WorkerHealth:
    """Health of a worker that has published five articles of all kinds over ten minutes."""
    world = World()
    process = world.start().joined()
    health = health_of(world.clock)
    health.show(view_of(process, gpus=(GPU,)))
    for value in [SHORT, LONG, INVALID, POISONED, None]:
        for _ in range(60):
            world.clock.sleep(EVERY_S)
            health.sample()
        world.put(value)
        world.steps(process, until=world.done)
        process.counters.latency_s.add(0.3)  # records of the fake log have no timestamps
        health.sample()
    return health


@pytest.fixture(scope="module")
def health() -> WorkerHealth:
    """A server that all tests share and none changes."""
    return busy_health()


@pytest.fixture
def page(browser: Browser, health: WorkerHealth) -> Iterator[Browser]:
    """The status page of the busy worker, with its first numbers on it."""
    with served(health) as port:
        browser.size(1240)
        opened(browser, port)
        yield browser


def opened(browser: Browser, port: int) -> None:
    """Open the page and wait for its numbers."""
    browser.open(f"http://{LOCALHOST}:{port}/")
    browser.until(
        lambda: browser.value("document.title") in {"worker-0: working", "worker-0: idle"}, "the first numbers"
    )


def said(browser: Browser) -> str:
    """The visible text of the page."""
    return str(browser.value("document.body.innerText"))


def test_it_shows_what_is_in_the_status(health: WorkerHealth) -> None:
    """Every place for a number names a part of the status that there is, or one that the script makes."""
    with served(health) as port:
        status = get(port, "/status.json").json
    named = set(re.findall(r'data-(?:show|most)="([^"]+)"', PAGE.body.decode()))
    assert len(named) > 30
    assert_none(name for name in named - DRAWN_BY_THE_SCRIPT if not _has(status, name.split(".")))


def _has(status: object, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(status, dict) or name not in status:
            return False
        status = status[name]
    return True


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
    assert not found(text, words)


def found(text: str, words: Sequence[str]) -> list[str]:
    """Those that are in the text."""
    return [word for word in words if word in text]


@in_a_browser
def test_numbers_and_charts_are_there_at_once(page: Browser) -> None:
    """With what happened before the page was opened; nobody else is asked for it, and nothing complains."""
    assert "2" == page.value("document.querySelector('[data-show=\"totals.dead_letters\"]').textContent")
    assert not [word for word in ("newswire-minilm", OTHER, "NVIDIA H200") if word not in said(page)]
    drawn = "[...document.querySelectorAll('#charts svg')].filter(svg => svg.querySelector('path.line')).length"
    assert CHARTS == page.value(drawn)
    assert page.value("document.querySelector('#charts path.line').getAttribute('d').split('L').length") >= 300
    labels = page.value("[...document.querySelectorAll('#charts svg')].map(svg => svg.getAttribute('aria-label'))")
    assert all("last 10 min: now " in label for label in labels), "as much as there is"
    page.until(lambda: sum("status.json" in url for url in page.requested) >= 3, "it asks again")
    assert [] == [url for url in page.requested if not url.startswith((f"http://{LOCALHOST}:", "data:image/svg+xml"))]
    assert [] == page.console


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_every_width_in_light_and_dark(page: Browser, *, dark: bool) -> None:
    """Nothing overflows sideways, and every text has enough contrast."""
    for width in (320, 768, 1920):
        page.size(width, dark=dark)
        page.until(lambda: page.value("innerWidth") == width, f"the window is {width} wide")  # noqa: B023  called in this turn
        assert width >= page.value("document.documentElement.scrollWidth"), width
        background = page.value("getComputedStyle(document.body).backgroundColor")
        assert ("rgb(15, 20, 26)" if dark else "rgb(246, 247, 249)") == background, width
        page.until(lambda: page.value("document.getAnimations().length") == 0, "colours have changed")
        assert [] == page.value(CONTRAST), width


@in_a_browser
def test_it_says_so_when_nobody_answers_and_goes_on_when_somebody_does(browser: Browser) -> None:
    """The last numbers stay, and a notice has the time, whether the worker has ended or only does not answer."""
    health, broken = busy_health(), threading.Event()

    def status(asked: Request) -> Reply:
        assert not broken.is_set(), "as a proxy whose worker has gone"
        return page_routes(health)["/status.json"](asked)

    with serving({**page_routes(health), "/status.json": status}) as port:
        browser.size(1240)
        opened(browser, port)
        broken.set()
        browser.until(lambda: "no answer since " in said(browser), "the worker is missed")
        assert browser.value("document.body.classList.contains('away')")
        assert "no answer" == browser.value("document.getElementById('state').textContent")
        assert "newswire-minilm" in said(browser)
        broken.clear()
        browser.until(lambda: "no answer" not in said(browser), "it is there again")
    browser.until(lambda: "no answer since " in said(browser), "it is missed once more")


@in_a_browser
def test_it_says_why_a_worker_is_not_ready(browser: Browser) -> None:
    """While it starts there are no numbers, and no errors either."""
    with served(health_of(World().clock)) as port:
        browser.size(1240)
        browser.open(f"http://{LOCALHOST}:{port}/")
        browser.until(lambda: "not ready: loading the model" in said(browser), "the reason")
        assert "starting" == browser.value("document.getElementById('state').textContent")
        assert [] == [line for line in browser.console if "favicon" not in line]
