"""`enricher catalogue check` and `try`: what a catalogue has, and what it does with articles, before a worker has it.

They read the catalogue with the worker's own code, and decide nothing about matching.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from enricher.errors import NotEnriched
from enricher.worker.articles import encode_record
from enricher.worker.commands.console import data_console, printable, remark_console, write_line
from enricher.worker.files.catalogue_index import CatalogueFiles, CatalogueIndex
from enricher.worker.records import DeadLetter
from enricher.worker.records.outcomes import MAX_GENERATION
from enricher.worker.rules.catalogue import OUTCOMES, Entry, outcome_of
from enricher.worker.rules.folding import fold
from enricher.worker.settings import load_settings

_EXAMPLES = 10
_SHORT_CHARS = 2

Catalogue = Annotated[
    Path,
    typer.Argument(help="The catalogue: a file of JSON lines, or a folder with files *.jsonl.", show_default=False),
]


def catalogue_check(file: Catalogue) -> None:
    """Check a catalogue, and show the names that single out no entry by themselves.

    It shows names of several entries, names of several entries after folding alone (diacritics, legal forms), and names of
    at most two characters, which many texts have; ten of each. A worker takes such a catalogue: an entity with several
    candidates has an id only if its article singles one out.

    Exit code: 0, or 2 if a worker would refuse the catalogue; the message has file and line.
    """
    index = CatalogueIndex(CatalogueFiles(file), max_generation=MAX_GENERATION)
    console = data_console()
    console.print(
        f"{index.entries:,} entries with {index.names:,} names; generation {index.card.generation}; {index.card.digest}",
        soft_wrap=True,
    )
    console.print(f"labels: {escape(', '.join(sorted(index.labels)) or 'none')}", soft_wrap=True)
    shared = [_in_words(entries) for entries in index.shared_names()]
    _show("names of several entries", [each for each, is_folded in shared if not is_folded])
    _show("names of several entries after folding alone", [each for each, is_folded in shared if is_folded])
    short = (f"{name} ({entry.id})" for entry in index for name in entry.names if len(fold(name)) <= _SHORT_CHARS)
    _show(f"names of at most {_SHORT_CHARS} characters", [*short])


def _in_words(entries: Sequence[Entry]) -> tuple[str, bool]:
    """The entries that share a name, in words; and whether they share it only after folding."""
    exact = Counter(name for entry in entries for name in {fold(each) for each in entry.names})
    name, count = exact.most_common(1)[0]
    if count == 1:
        name = min(set.intersection(*(entry.keys for entry in entries)), default=name)
    ids = ", ".join(entry.id for entry in entries[:_EXAMPLES])
    return f"{name} ({ids}{', ...' if len(entries) > _EXAMPLES else ''})", count == 1


def _show(what: str, found: Sequence[str]) -> None:
    console = data_console()
    console.print(f"{what}: {len(found):,}")
    for each in found[:_EXAMPLES]:
        console.print(f"  {escape(printable(each))}", soft_wrap=True)


def catalogue_try(
    file: Catalogue,
    *,
    in_text: Annotated[
        bool, typer.Option("--text", help="Find names in the text, too, as with catalogue.find=text.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each entity.")] = False,
) -> None:
    """Enrich the articles on standard input with a catalogue, and print each entity with its ids and why.

    `enricher catalogue try FILE < articles.jsonl`. The other settings are those of the worker. At the end stands, on
    standard error, how many entities of each label were matched, ambiguous and unmatched, and how many only the catalogue
    found, behind whose ids stands "in the text".

    Exit code: 0, or 2 for settings or the catalogue, 10 if no line could be enriched.
    """
    from enricher.worker.wiring.loaded_tasks import load_tasks  # noqa: PLC0415  imports the model's runtime
    from enricher.worker.wiring.memory_runs import Run  # noqa: PLC0415

    settings = load_settings()
    changed = {"path": file} | ({"find": "text"} if in_text else {})
    settings = settings.model_copy(update={"catalogue": settings.catalogue.model_copy(update=changed)})
    tasks = load_tasks(settings, every_shape=False)
    counts: Counter[tuple[str, str]] = Counter()
    lines = (line for line in sys.stdin.buffer if line.strip())
    records, refused = 0, 0
    with closing(Run(settings, tasks, lines, value_of=bytes, write=encode_record)) as run:
        for answer in run:
            if isinstance(answer.written, DeadLetter):
                refused += 1
                remark_console().print(f"line {answer.offset + 1}: {escape(answer.written.loggable)}")
                continue
            records += 1
            record = orjson.loads(answer.written)
            for entity in record["entities"]:
                counts[entity["label"], outcome_of(entity)] += 1
                found = {"article": record["id"], **entity}
                write_line(orjson.dumps(found) if as_json else _as_line(found))
    for label in sorted({label for label, _ in counts}):
        shown = ", ".join(f"{counts[label, each]:,} {each}" for each in OUTCOMES)
        remark_console().print(f"{escape(label)}: {shown}")
    if refused and not records:
        raise NotEnriched(f"none of {refused} lines could be enriched")


def _as_line(entity: Mapping[str, Any]) -> bytes:
    """Article, label, text, id and why, candidates, source: between tabs, which `printable` leaves in no text."""
    ids = " ".join(f"{each['id']}:{each['match']}" for each in entity.get("ids", ()))
    chosen = f"{entity['id']} ({entity['why']})" if "id" in entity else "-"
    source = ("in the text",) * ("source" in entity)
    return "\t".join(
        map(printable, (entity["article"], entity["label"], entity["text"], chosen, ids, *source))
    ).encode()
