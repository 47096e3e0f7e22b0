"""The plots on the pages of `enricher model`: matplotlib's, the same each time, in the page's colours; tables without it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
from commands.test_model_check import SHIPPED

from enricher.workshop.pages import plots
from enricher.workshop.pages.frame import COLOURS, page
from enricher.workshop.pages.gate import gate_page
from enricher.workshop.pages.plots import (
    HOW_TO_GET_PLOTS,
    Histogram,
    Line,
    Pair,
    Range,
    histogram_plot,
    lines_plot,
    pairs_plot,
    ranges_plot,
)

HOSTILE = "$\\frac{</text><script>alert(1)</script>&\"'\x00\ud800\u202e\u6f22 #2563eb"
PLOTS: dict[str, Callable[[str], str]] = {
    "pairs": lambda name: pairs_plot([Pair(name, 0.5, 0.61, 1234), Pair("LOC", 0.0, 1.0, 0)], ("fp32", name), "texts"),
    "ranges": lambda name: ranges_plot([Range(name, -0.5, -900.0, 2.0, strong=True)], "points", 100.0),
    "histogram": lambda _name: histogram_plot(Histogram((0, 3, 1000), -8.0, 0.25, "difference")),
    "lines": lambda name: lines_plot([Line(name, "main", [(128, 0.0), (4096, 7.5)])], "tokens", "ms", (128.0, 0.0)),
}
each_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installation without the extra: it is neither found nor imported."""
    monkeypatch.setattr(plots, "find_spec", lambda _name: None)
    monkeypatch.setitem(sys.modules, "enricher.workshop.pages.drawing", None)


@each_plot
@pytest.mark.filterwarnings("error")
def test_a_plot_is_the_same_each_time_and_whatever_the_names(plot: Callable[[str], str]) -> None:
    """No date, no random id, no formula, no markup from a name, and no warning."""
    drawn = plot(HOSTILE)
    assert drawn == plot(HOSTILE)
    assert "<svg" in drawn
    assert "<script" not in drawn
    assert "&lt;/text&gt;" in drawn or "difference" in drawn
    assert "\x00" not in re.sub(r'<div class="key">.*?</div>', "", drawn)


@each_plot
def test_colours_are_those_of_the_page_in_light_and_dark(plot: Callable[[str], str]) -> None:
    """No tag names a colour by itself: each is a variable of the style, and texts take the page's font."""
    tags = re.findall(r"<[^>]*>", plot("PER"))
    assert [] == [tag for tag in tags if re.search("#[0-9a-f]{6}|font-family|rgb", tag.split(" href=")[0])]
    assert any("var(--main)" in tag for tag in tags)
    style = page("", "", [])
    assert all(2 == style.count(f"--{name}:") for name in COLOURS)


@each_plot
@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_the_figures_are_in_a_table(plot: Callable[[str], str]) -> None:
    """The names are escaped in it."""
    table = plot("A&B")
    assert table.startswith("<table>")
    assert "A&amp;B" in table or "difference" in table


def test_a_page_says_once_how_to_get_plots(request: pytest.FixtureRequest) -> None:
    """Only where there are none."""
    assert HOW_TO_GET_PLOTS not in gate_page(SHIPPED).replace("&#x27;", "'")
    request.getfixturevalue("without_matplotlib")
    without = gate_page(SHIPPED).replace("&#x27;", "'")
    assert 1 == without.count(HOW_TO_GET_PLOTS)
    assert "<svg" not in without
