"""The question that the page asks of the index, and what it learns from the answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

FACETS = {"PER": "People", "ORG": "Organisations", "LOC": "Places"}
"""Labels of the model that have a facet, and its heading."""
_HITS, _FACET_VALUES = 20, 10
_MAX_TEXT_CHARS, _MAX_CHOSEN = 200, 12


@dataclass(frozen=True, slots=True)
class Search:
    """Words, and values of facets that a hit must have, as (label, text)."""

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
                    "filter": [{"term": {f"facets.{label}": value}} for label, value in self.chosen],
                }
            },
            "sort": ["_score", {"published_at": "desc"}],
            "_source": ["id", "title", "body", "url", "source", "published_at", "entities"],
            "aggs": {label: {"terms": {"field": f"facets.{label}", "size": _FACET_VALUES}} for label in FACETS},
        }


@dataclass(frozen=True, slots=True)
class Found:
    """`facets`: for each label values and how many of the hits have them. `hits`: documents."""

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
