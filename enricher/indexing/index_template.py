"""The index template: how the fields of documents can be searched. Pure; deploy/search-index.md explains it.

Fields that are not named here are kept in the document and cannot be searched: a mapping that grows with what comes has at
some time a field of two types, and refuses documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enricher.indexing.search_index import Product

Json = Mapping[str, Any]

_PRIORITY = 200
"""Above the templates that the two products bring themselves. The longer of two names wins where both patterns fit."""
_GC_DELETES = "1d"
"""How long the index remembers the version of a document that it has deleted. Each takes 135 bytes of a node's heap."""
_MAX_LIST = 50_000
"""Entities and classes of one article; the index refuses one with more. The longest article of the default settings has a
million characters, and as many if every 20th begins one."""
_MAX_TERM_CHARS = 8_000
"""Lucene takes terms of at most 32,766 bytes, and refuses the document of a longer one; a character has at most 4."""
_MAX_NAME_CHARS = 256
_ANY_OBJECT: Mapping[Product, Json] = {
    "opensearch": {"type": "flat_object"},
    "elasticsearch": {"type": "flattened", "ignore_above": _MAX_TERM_CHARS},
}
"""An object of any shape: its values are compared as texts, and none of them changes the mapping."""


def index_template(name: str, product: Product) -> Json:
    """The composable index template for the index or alias `name`, and for indices behind it that are called `name-...`."""
    settings = {"gc_deletes": _GC_DELETES, "mapping.nested_objects.limit": _MAX_LIST}
    facet = {"path_match": "facets.*", "match_mapping_type": "string", "mapping": _keyword(_MAX_NAME_CHARS)}
    properties = {
        "id": _keyword(),
        "version": {"type": "long"},
        "title": _text(),
        "body": {"type": "text"},
        "language": _keyword(),
        "source": _keyword(),
        "url": _keyword(),
        # Articles have dates in any form; one that is none must not make the index refuse the article.
        "published_at": {"type": "date", "ignore_malformed": True},
        "metadata": _ANY_OBJECT[product],
        "entities": _list_of(
            label=_keyword(),
            text=_text(),
            field=_keyword(),
            start={"type": "integer"},
            end={"type": "integer"},
            score={"type": "half_float"},
            task=_keyword(),
        ),
        "facets": {"type": "object", "dynamic": True},
        "classifications": _list_of(task=_keyword(), label=_keyword(), score={"type": "half_float"}),
        "regressions": _list_of(task=_keyword(), value={"type": "float"}),
        "model": _object(name=_keyword(), digest=_keyword(), precision=_keyword()),
        "coverage": _object(tokens={"type": "integer"}, windows={"type": "integer"}, truncated={"type": "boolean"}),
    }
    mappings = {"dynamic": False, "dynamic_templates": [{"facets": facet}], "properties": properties}
    return {
        "index_patterns": [name, f"{name}-*"],
        "priority": _PRIORITY + len(name),
        "template": {"settings": {"index": settings}, "mappings": mappings},
        "_meta": {"description": "Written by 'enricher index template'."},
    }


def _keyword(longest_chars: int = _MAX_TERM_CHARS) -> Json:
    """A text that is compared as a whole; a longer one cannot be searched."""
    return {"type": "keyword", "ignore_above": longest_chars}


def _text() -> Json:
    """Words to search, and under `.keyword` the whole, to count and to compare."""
    return {"type": "text", "fields": {"keyword": _keyword(_MAX_NAME_CHARS)}}


def _object(**fields: Json) -> Json:
    return {"dynamic": False, "properties": fields}


def _list_of(**fields: Json) -> Json:
    """A list whose members are searched one by one: a label and a text of one query are those of one entity."""
    return {"type": "nested", **_object(**fields)}
