"""The status page in a real browser: its content, in light and dark, on a phone and a wide screen, and its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from health.looking import GPU, LOCALHOST, health_of, served, serving, view_of
from loop.world import INVALID, LONG, POISONED, SHORT, World
from support.browser import Browser, chromium

from enricher.worker.health.page import PAGE
from enricher.worker.health.routes import Reply, Request, page_routes
from enricher.worker.health.samples import EVERY_S
from enricher.worker.health.worker_health import WorkerHealth

_NO_CHROMIUM = pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: apt install chromium)")


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test as one for a browser, which `--quick` does not start."""
    marked: Callable[..., None] = pytest.mark.slow(_NO_CHROMIUM(test))
    return marked


CHARTS = 8
CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")


def busy_health() -> WorkerHealth:
    """Health of a worker that has published five articles of all kinds over ten minutes."""
    world = World()
    process = world.start()
    process.source.open(process.worker)
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


@in_a_browser
def test_the_page_shows_the_workers_numbers(page: Browser) -> None:
    """State, model, counts, reasons, GPU: the same as in the status."""
    text = said(page)
    for expected in (
        "newswire-minilm",
        "CPUExecutionProvider",
        "enricher 1.2.3",
        "InvalidArticle",
        "NVIDIA H200",
    ):
        assert expected in text
    assert "2" == page.value("document.querySelector('[data-show=\"totals.dead_letters\"]').textContent")
    assert "5" == page.value("document.querySelector('[data-show=\"totals.published\"]').textContent")
    assert "articles → entities, group enricher" in text


@in_a_browser
def test_the_charts_are_full_at_once(page: Browser) -> None:
    """Each chart shows what happened before the page was opened."""
    assert CHARTS == page.value("document.querySelectorAll('#charts svg').length")
    drawn = "[...document.querySelectorAll('#charts svg')].filter(svg => svg.querySelector('path.line')).length"
    assert CHARTS == page.value(drawn)
    points = page.value("document.querySelector('#charts path.line').getAttribute('d').split('L').length")
    assert points >= 300


@in_a_browser
def test_pointing_at_a_chart_tells_the_time(page: Browser) -> None:
    """A line marks the point; without the pointer, the last figure is shown again."""
    first = "document.querySelector('#charts figure')"
    box = page.value(
        f"(r => ({{x: r.x + r.width * .9, y: r.y + r.height / 2}}))({first}.querySelector('svg').getBoundingClientRect())"
    )
    page.tell("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"], y=box["y"])
    page.until(lambda: " at " in page.value(f"{first}.innerText").replace("\n", " "), "the time that is pointed at")
    assert page.value(f"!!{first}.querySelector('line.at')")


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_every_width_in_light_and_dark(page: Browser, *, dark: bool) -> None:
    """Nothing overflows sideways, and every text has enough contrast."""
    for width in (320, 390, 768, 1240, 1920):
        page.size(width, dark=dark)
        page.until(lambda: page.value("innerWidth") == width, f"the window is {width} wide")  # noqa: B023  called in this turn
        assert width >= page.value("document.documentElement.scrollWidth"), width
        background = page.value("getComputedStyle(document.body).backgroundColor")
        assert ("rgb(15, 20, 26)" if dark else "rgb(246, 247, 249)") == background, width
        page.until(lambda: page.value("document.getAnimations().length") == 0, "colours have changed")
        assert [] == page.value(CONTRAST), width


@in_a_browser
def test_it_asks_nobody_else_and_complains_of_nothing(page: Browser, health: WorkerHealth) -> None:
    """It requests only its document and the status, and logs nothing to the console."""
    page.until(lambda: sum("status.json" in url for url in page.requested) >= 3, "it asks again")
    foreign = [url for url in page.requested if not url.startswith((f"http://{LOCALHOST}:", "data:image/svg+xml"))]
    assert [] == foreign
    assert [] == page.console
    assert health.liveness().ok


@in_a_browser
def test_it_moves_for_nobody_who_does_not_want_it(page: Browser) -> None:
    """`prefers-reduced-motion` switches the transitions off."""
    duration = "getComputedStyle(document.getElementById('state')).transitionDuration"
    assert page.value(duration).startswith("0.4s")
    page.size(1240, still=True)
    page.until(lambda: page.value(duration) == "0s", "no transition")


@in_a_browser
def test_it_can_be_read_without_eyes_and_without_a_mouse(page: Browser) -> None:
    """A language, a first heading, headings of sections, names of charts and of scrolling tables, headers of columns."""
    assert "en" == page.value("document.documentElement.lang")
    assert 1 == page.value("document.querySelectorAll('h1').length")
    headed = "section => document.getElementById(section.getAttribute('aria-labelledby'))"
    assert page.value(f"[...document.querySelectorAll('section')].every({headed})")
    labels = page.value("[...document.querySelectorAll('#charts svg')].map(svg => svg.getAttribute('aria-label'))")
    assert all("last 10 min: now " in label for label in labels), "as much as there is"
    assert 0 == page.value("document.querySelectorAll('th:not([scope])').length")
    assert 0 == page.value(
        "document.querySelectorAll('.scroll:not([tabindex=\"0\"][role=region][aria-labelledby])').length"
    )
    tree = page.tell("Accessibility.getFullAXTree")["nodes"]
    images = [node for node in tree if node.get("role", {}).get("value") == "image"]
    assert CHARTS == len([node for node in images if node["name"]["value"]])


@in_a_browser
def test_no_text_of_an_article_is_on_it(page: Browser) -> None:
    """Neither enriched nor refused articles are quoted."""
    markup = page.value("document.documentElement.outerHTML")
    for word in ("Ada", "Lovelace", "London", "poison", "Mister", "second line"):
        assert word not in markup


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


def test_the_document_names_no_other_place() -> None:
    """No address in it but its own icon's and the name of SVG; no frame, no import, no style or handler in an attribute."""
    text = PAGE.body.decode()
    for name in ("http://www.w3.org/2000/svg",):
        text = text.replace(name, "")
    assert not found(
        text, ["http:", "https:", "//cdn", "@import", "url(", "<iframe", "innerHTML", "eval(", " style=", " onclick="]
    )


def found(text: str, words: Sequence[str]) -> list[str]:
    """The addresses in the page."""
    return [word for word in words if word in text]
