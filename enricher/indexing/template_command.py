"""`enricher index template`: prints the index template, or installs it."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Literal

import orjson
import typer

from enricher.indexing.index_template import index_template
from enricher.indexing.open_index import open_index
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
