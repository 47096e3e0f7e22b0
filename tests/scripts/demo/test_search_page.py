"""The search page of `scripts/demo --index`: what it asks, and that nothing of an article is taken for HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE_S
from support.properties import any_text
from support.search_server import SearchServer, serving

from enricher.indexing.index_documents import name_of
from tools.demo.search.page import CATALOGUE, FACETS, Found, Search, mark_entities, page
from tools.demo.search.server import SearchPage

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def entity(text: str, label: str, start: int, end: int, field: str = "body") -> dict[str, Any]:
    """One of a document."""
    place = {"start": start, "end": end, "field": field}
    return {"text": text[start:end], "name": name_of(text[start:end]), "label": label, "score": 0.987, **place}


def found(*hits: dict[str, Any], facets: dict[str, list[tuple[str, int]]] | None = None) -> Found:
    """An answer."""
    return Found(len(hits), 3, list(hits), {label: (facets or {}).get(label, []) for label in FACETS})


OBAMA = (CATALOGUE, "Barack Obama\tQ76")


@pytest.mark.parametrize("search", [Search(), Search("a b", (("PER", "Ana & Co"), ("LOC", "München"), OBAMA))])
def test_an_address_leads_to_its_search(search: Search) -> None:
    """Filters and words survive the way through the URL."""
    assert search == Search.read(search.url.partition("?")[2])


def test_no_text_of_an_article_is_taken_for_html() -> None:
    """In title, text, entity, facet and box; the browser gets every character back."""
    hit = {
        "id": HOSTILE,
        "title": HOSTILE,
        "body": HOSTILE,
        "source": HOSTILE,
        "published_at": HOSTILE,
        "entities": [entity(HOSTILE, HOSTILE, 0, 8), entity(HOSTILE, "PER", 9, 15, "title")],
    }
    html = page(Search(HOSTILE, (("ORG", HOSTILE),)), found(hit, facets={"PER": [(HOSTILE, 1)]}))
    assert "<script" not in html
    assert "<img" not in html
    attributes = re.findall(r'="([^"]*)"', html)
    assert not any("<" in each for each in attributes)


def test_entities_are_marked_by_their_offsets() -> None:
    """In code points, where an emoji is one; what does not fit into the excerpt is left out, and its text stays."""
    text = "🙂 Ana met Bo in Oslo."
    entities = [entity(text, "LOC", 16, 20), entity(text, "PER", 2, 5), entity(text, "PER", 10, 12)]
    html = mark_entities(Search(), text, entities, 0, 13)
    assert '🙂 <a href="/?PER=Ana"><mark class="PER" title="PER, 0.99">Ana</mark></a> met ' in html
    assert "Oslo" not in html
    assert text[:13] == re.sub(r"<[^>]*>", "", html)


@given(any_text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=6))
def test_marking_changes_no_text(text: str, places: list[tuple[int, int]]) -> None:
    """Whatever the entities are, overlapping ones included."""
    entities = [entity(text, "PER", at, min(at + size, len(text))) for at, size in places if at < len(text)]
    html = mark_entities(Search(), text, entities, 0, len(text))
    plain = re.sub(r"<(?:/?a|/?mark)\b[^>]*>", "", html)
    assert text == _unescaped(plain)


def _unescaped(text: str) -> str:
    for name, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&")):
        text = text.replace(name, character)
    return text


def test_an_entry_is_shown_by_its_name_and_filters_by_its_id() -> None:
    """The excerpt begins before an entity that is the entry, whatever the article calls it."""
    body = "x " * 300 + "Mr Obama met Bo. " + "y " * 600
    obama = {**entity(body, "PER", 603, 608), "id": "Q76", "catalogue_name": "Barack Obama"}
    search = Search("", (OBAMA,))
    assert [{"term": {"named_ids": "Barack Obama\tQ76"}}] == search.body()["query"]["bool"]["filter"]
    html = page(search, found({"body": body, "entities": [obama]}, facets={CATALOGUE: [(OBAMA[1], 7)]}))
    assert ">Barack Obama</a> <span>7</span>" in html
    assert 'title="PER, 0.99, Q76">Obama</mark>' in html


@pytest.fixture
def served() -> Iterator[str]:
    """The page of an index that knows no aggregations."""
    with serving(SearchServer(exists=True)) as search, SearchPage(search.url, "articles") as page:
        yield page.url


def test_an_index_that_gives_no_answer_is_told(served: str) -> None:
    """With a status that says so; and one page is all there is."""
    assert 502 == httpx2.get(served, timeout=PATIENCE_S).status_code
    assert 404 == httpx2.get(f"{served}_search", timeout=PATIENCE_S).status_code


def test_it_is_served_for_this_machine_only(served: str) -> None:
    """A site whose name leads here gets nothing of it; and what it says may run no script."""
    answer = httpx2.get(served, headers={"Host": "rebound.example"}, timeout=PATIENCE_S)
    assert 403 == answer.status_code
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
