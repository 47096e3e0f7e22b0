"""`enricher index template`: how the fields of documents can be searched. deploy/search-index.md explains it.

Fields that are not named here are kept in the document, but cannot be searched. A mapping that grew with the documents would
at some time refuse one, because it has a value of another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any, Literal

import orjson
import typer

from enricher.indexing.search_clients import open_index
from enricher.indexing.search_index import Product
from enricher.worker.commands.console import remark_console, write_line
from enricher.worker.settings import IndexSettings, load_settings


def print_index_template(
    *,
    install: Annotated[
        bool, typer.Option("--install", help="Install the template, or replace the one of this name.")
    ] = False,
) -> None:
    """Print the index template, settings and mapping, for the index of the settings; --install installs it.

    The template applies to indices that are created later; an index that exists keeps its mapping. Without --install nothing
    connects, and with index.product=auto the template is the one for OpenSearch. The printed template can be edited and
    installed with any client.

    Exit code: 0, or 2 for settings, 4 if the index refuses it, 6 if it does not answer.
    """
    settings = load_settings().index
    if install:
        _install(settings)
        return
    product: Literal["opensearch", "elasticsearch"] = "opensearch" if settings.product == "auto" else settings.product
    write_line(orjson.dumps(index_template(settings.name, product), option=orjson.OPT_INDENT_2))


def _install(settings: IndexSettings) -> None:
    with closing(open_index(settings)) as index:
        name = f"enricher-{settings.name}"
        index.put_template(name, index_template(settings.name, index.server().product))
        has_index = index.meta() is not None
    console = remark_console()
    console.print(f"The index template '{name}' is installed.")
    if has_index:
        console.print(
            f"The index '{settings.name}' exists already and keeps its mapping; the template applies to new indices."
        )


Json = Mapping[str, Any]

_PRIORITY = 200
"""The priority above the templates of both products. The length of the name is added, so the longer of two patterns wins."""
_GC_DELETES = "1d"
"""How long the index remembers the version of a deleted document. Each version takes 135 bytes of a node's heap."""
_MAX_LIST = 50_000
"""The most entities and classes of one article; the index refuses a document with more. The longest article of the default
settings has a million characters, so it reaches this if every 20th begins an entity."""
_MAX_TERM_CHARS = 8_000
"""Lucene takes terms of at most 32,766 bytes, and refuses a document with a longer one. A character has at most 4 bytes."""
_MAX_NAME_CHARS = 256
_ANY_OBJECT: Mapping[Product, Json] = {
    "opensearch": {"type": "flat_object"},
    "elasticsearch": {"type": "flattened", "ignore_above": _MAX_TERM_CHARS},
}
"""The type of an object of any shape. Its values are compared as texts and do not change the mapping."""


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
        # Articles have dates in any form. A date that cannot be read must not make the index refuse the article.
        "published_at": {"type": "date", "ignore_malformed": True},
        "metadata": _ANY_OBJECT[product],
        "entities": _list_of(
            label=_keyword(),
            name=_text(),
            field=_keyword(),
            start={"type": "integer"},
            end={"type": "integer"},
            score={"type": "half_float"},
            task=_keyword(),
            source=_keyword(),
            id=_keyword(),
            catalogue_name=_keyword(),
            why=_keyword(),
            ids=_object(id=_keyword(), match=_keyword()),
        ),
        "ids": _keyword(),
        "named_ids": _keyword(),
        "catalogue": _object(digest=_keyword(), generation={"type": "integer"}),
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
    """A text that is compared as a whole. Texts that are longer cannot be searched."""
    return {"type": "keyword", "ignore_above": longest_chars}


def _text() -> Json:
    """A text whose words can be searched; under `.keyword` it is counted and compared as a whole."""
    return {"type": "text", "fields": {"keyword": _keyword(_MAX_NAME_CHARS)}}


def _object(**fields: Json) -> Json:
    return {"dynamic": False, "properties": fields}


def _list_of(**fields: Json) -> Json:
    """A list whose members are searched one by one, so that a query for a label and a text finds both in one entity."""
    return {"type": "nested", **_object(**fields)}
