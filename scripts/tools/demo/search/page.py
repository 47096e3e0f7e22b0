"""The search page: the question that it asks of the index, and the answer as plain HTML. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

CATALOGUE = "catalogue"
FACETS = {CATALOGUE: "In the catalogue", "PER": "People", "ORG": "Organisations", "LOC": "Places"}
"""Headings of the facets, by the model's label. `catalogue` has its entries, each as its name, a tab, and its id."""
_HITS, _FACET_VALUES = 50, 10
"""All of the demonstration's articles fit into one page."""
_MAX_TEXT_CHARS, _MAX_CHOSEN = 200, 12


@dataclass(frozen=True, slots=True)
class Search:
    """Words, and values that a hit must have, as (name of the facet, value)."""

    text: str = ""
    chosen: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, query: str) -> Search:
        """Read a URL's query; what is too long or unknown is left out."""
        pairs = [(name, value[:_MAX_TEXT_CHARS]) for name, value in parse_qsl(query, max_num_fields=100)]
        text = next((value.strip() for name, value in pairs if name == "q"), "")
        chosen = dict.fromkeys((name, value) for name, value in pairs if name in FACETS)
        return cls(text, tuple(chosen)[:_MAX_CHOSEN])

    @property
    def url(self) -> str:
        pairs = [*([("q", self.text)] if self.text else []), *self.chosen]
        return f"/?{urlencode(pairs)}" if pairs else "/"

    def toggled(self, label: str, value: str) -> Search:
        """The search with this value, or without it if it was chosen."""
        each = (label, value)
        without = tuple(other for other in self.chosen if other != each)
        return Search(self.text, without if each in self.chosen else (*self.chosen, each))

    def body(self) -> dict[str, Any]:
        words = {"query": self.text, "fields": ["title^3", "body"], "type": "cross_fields", "operator": "and"}
        return {
            "size": _HITS,
            "track_total_hits": True,
            "query": {
                "bool": {
                    "must": [{"multi_match": words} if self.text else {"match_all": {}}],
                    "filter": [{"term": {_field(facet): value}} for facet, value in self.chosen],
                }
            },
            "sort": ["_score", {"published_at": "desc"}, {"id": "asc"}],
            "_source": ["id", "title", "body", "url", "source", "published_at", "entities"],
            "aggs": {each: {"terms": {"field": _field(each), "size": _FACET_VALUES}} for each in FACETS},
        }


def _field(facet: str) -> str:
    return "named_ids" if facet == CATALOGUE else f"facets.{facet}"


def _shown(value: str) -> str:
    """A value of a facet as a reader sees it: an entry of the catalogue without its id."""
    return value.partition("\t")[0]


@dataclass(frozen=True, slots=True)
class Found:
    """`facets`: for each of them values and how many of the hits have them. `hits`: documents."""

    total: int
    took_ms: int
    hits: list[Mapping[str, Any]]
    facets: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Found:
        """Read an answer to `Search.body`."""
        facets = {
            label: [(bucket["key"], bucket["doc_count"]) for bucket in answer["aggregations"][label]["buckets"]]
            for label in FACETS
        }
        hits = [hit["_source"] for hit in answer["hits"]["hits"]]
        return cls(answer["hits"]["total"]["value"], answer["took"], hits, facets)


_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
POLICY = "; ".join((
    "default-src 'none'",
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
    "img-src data:",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
))  # fmt: skip
"""The header Content-Security-Policy: our own style and nothing else, so a text taken for HTML could do nothing."""
_EXCERPT_CHARS, _BEFORE_CHARS = 520, 80
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4' fill='%232563eb'/%3E%3C/svg%3E"
)


def page(search: Search, found: Found) -> str:
    hits = (
        "".join(_hit(search, each) for each in found.hits) or '<p class="none">Nothing matches. Take a filter away?</p>'
    )
    facets = "".join(_facet(search, label, found.facets[label]) for label in FACETS)
    count = f"{found.total} article{'' if found.total == 1 else 's'}, {found.took_ms} ms"
    return _document(
        f"{search.text or 'All articles'} - enricher",
        f"""{_form(search)}
<p class="count" role="status">{count}</p>
{_chosen(search)}
<div class="columns"><nav aria-label="Filters">{facets}</nav><div class="hits">{hits}</div></div>""",
    )


def failure(reason: str) -> str:
    """The page for when there is no answer."""
    return _document("No answer - enricher", f'<p class="none" role="alert">{escape(reason)}</p>')


def _document(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="{_ICON}">
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1><a href="/">Articles by who and what is in them</a></h1>
{body}
</main>
</body>
</html>
"""


def _form(search: Search) -> str:
    kept = "".join(
        f'<input type="hidden" name="{escape(label)}" value="{escape(value)}">' for label, value in search.chosen
    )
    return f"""<form role="search" action="/"><label for="q">Words in title or text</label>
<div class="box"><input id="q" name="q" type="search" value="{escape(search.text)}" autocomplete="off" autofocus>
<button>Search</button></div>{kept}</form>"""


def _chosen(search: Search) -> str:
    links = "".join(
        f'<a class="chip {escape(label)}" href="{escape(search.toggled(label, value).url)}" '
        f'aria-label="Remove the filter {escape(_shown(value))}">{escape(_shown(value))} '
        f'<span aria-hidden="true">×</span></a>'
        for label, value in search.chosen
    )
    return f'<p class="chosen">{links}</p>' if links else ""


def _facet(search: Search, label: str, values: Iterable[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><a href="{escape(search.toggled(label, value).url)}"'
        f"{' aria-current=true' if (label, value) in search.chosen else ''}>{escape(_shown(value))}</a> "
        f"<span>{count}</span></li>"
        for value, count in values
    )
    return f'<section class="{label}"><h2>{FACETS[label]}</h2><ul>{items or "<li>none</li>"}</ul></section>'


def _hit(search: Search, document: Mapping[str, Any]) -> str:
    title, body = str(document.get("title", "")), str(document.get("body", ""))
    entities = document.get("entities", ())
    start, end = excerpt(search, body, entities)
    text = mark_entities(search, body, [each for each in entities if each["field"] == "body"], start, end)
    heading = mark_entities(search, title, [each for each in entities if each["field"] == "title"], 0, len(title))
    about = " · ".join(filter(None, (str(document.get("published_at", ""))[:10], str(document.get("source", "")))))
    return f"""<article><h2>{heading or escape(str(document.get("id")))}</h2>
<p class="about">{escape(about)}</p>
<p>{"… " if start else ""}{text}{" …" if end < len(body) else ""}</p></article>"""


def excerpt(search: Search, body: str, entities: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """The part of the body to show: from a little before the first chosen entity, or the first word that was searched."""
    places = [each["start"] for each in entities if each["field"] == "body" and _is_chosen(search, each)]
    lowered = body.lower()
    places += [at for word in search.text.lower().split() if (at := lowered.find(word)) >= 0] if not places else []
    start = max(0, min(places, default=0) - _BEFORE_CHARS)
    if start:
        start = body.find(" ", start) + 1
    end = min(len(body), start + _EXCERPT_CHARS)
    return start, end if end == len(body) else max(body.rfind(" ", start, end), start + 1)


def _is_chosen(search: Search, entity: Mapping[str, Any]) -> bool:
    values = {(entity["label"], entity["name"]), (CATALOGUE, f"{entity.get('catalogue_name')}\t{entity.get('id')}")}
    return not values.isdisjoint(search.chosen)


def mark_entities(search: Search, text: str, entities: Sequence[Mapping[str, Any]], start: int, end: int) -> str:
    """The HTML of `text[start:end]`, with each entity in it as a link that searches for it.

    `entities`: of this text; `start` and `end` are code points, as Python counts them.
    """
    parts, at = [], start
    for each in sorted(entities, key=lambda entity: int(entity["start"])):
        first, last = each["start"], each["end"]
        if first < at or last > end:
            continue
        parts += [escape(text[at:first]), _mark(search, each, text[first:last])]
        at = last
    return "".join(parts) + escape(text[at:end])


def _mark(search: Search, entity: Mapping[str, Any], text: str) -> str:
    label, name = str(entity["label"]), str(entity["name"])
    about = ", ".join((label, f"{float(entity['score']):.2f}", *([str(entity["id"])] if "id" in entity else [])))
    shown = f'<mark class="{escape(label)}" title="{escape(about)}">{escape(text)}</mark>'
    if label not in FACETS or (label, name) in search.chosen:
        return shown
    return f'<a href="{escape(search.toggled(label, name).url)}">{shown}</a>'
