"""The catalogue of a running worker: adds ids to records, and takes a new version of the file.

The file is looked at every `LOOK_S` seconds, while records are made. A new version is read and checked in a thread, and
taken by the loop's thread before its next record: that thread makes transactions too, so it is between two of them, and
each record is of one version, which it names.

A new version that is wrong is not taken: the one in memory is still good, so the worker goes on with it, logs why, and shows
it in `enricher.catalogue.refused` until a good one comes. A restart then refuses to start. The old version is never dropped
before the new one is good, so during a change there is memory for both.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice
from pathlib import Path

from enricher.errors import SettingsError
from enricher.worker.files.catalogue_index import CatalogueFiles, CatalogueIndex, version_of
from enricher.worker.records import DeadLetter, EnrichedRecord
from enricher.worker.rules.catalogue import MAX_IDS, TextSearch, add_ids
from enricher.worker.stats import Counters

LOOK_S = 10.0
"""How often the file is looked at. Kubernetes itself takes up to a minute until a pod sees a new version."""

log = logging.getLogger(__name__)


class LiveCatalogue:
    """The catalogue at `path`, with its newest good version. `labels`: of the entities that get ids; None for all.

    `search`: which of its names are found in texts, too; None if only entities of the model get ids.
    `max_generation`: what the generation of a catalogue may be. Raises SettingsError if the catalogue is wrong. Workers of
    one process share it; each reads an index once for a record, and an index never changes.
    """

    def __init__(
        self,
        path: Path,
        *,
        labels: Collection[str] | None,
        max_generation: int,
        search: TextSearch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._labels, self._max_generation = path, labels, max_generation
        self._search, self._clock = search, clock
        self._index = self._read(CatalogueFiles(path))
        self._next: CatalogueIndex | None = None
        self._looked_at = self._index.version
        """The version that was read last, good or not."""
        self._look_s = clock() + LOOK_S
        self._thread: threading.Thread | None = None
        self._refused = False
        _log_taken(path, self._index)

    def note(self, counters: Counters) -> None:
        """Show the state of the catalogue in these counters."""
        counters.catalogue_modified_s, counters.catalogue_refused = self._index.modified_s, self._refused

    def add_ids(self, record: EnrichedRecord, counters: Counters) -> EnrichedRecord | DeadLetter:
        """The record with the ids of its entities, and the version of the catalogue. For the loop's thread."""
        self._take_new_version()
        self.note(counters)
        index, article, entities = self._index, record.article, record.entities
        labels, find = self._labels, index.find
        wanted = [each for each in entities if labels is None or each["label"] in labels]
        found = [find(each["text"], each["label"], article.language) for each in wanted]
        if self._search and (new := [*islice(index.new_entities(article, entities), MAX_IDS + 1)]):
            entities = sorted([*entities, *new], key=lambda each: (each["field"] != "title", each["start"]))
            wanted += new
            found += [find(each["text"], each["label"], article.language, any_label=True) for each in new]
        if sum(map(len, found)) > MAX_IDS:
            return DeadLetter(
                "publish", "OutputTooLarge", f"its entities have more than {MAX_IDS} ids of the catalogue"
            )
        counters.count_links(add_ids(article, wanted, found))
        if article.version is not None:
            article = replace(article, version=article.version + index.card.generation)
        return replace(record, article=article, entities=entities, catalogue=index.card)

    def _read(self, files: CatalogueFiles) -> CatalogueIndex:
        return CatalogueIndex(files, max_generation=self._max_generation, search=self._search)

    def _take_new_version(self) -> None:
        if (index := self._next) is not None:
            self._index, self._next, self._refused = index, None, False
            _log_taken(self._path, index)
        now_s = self._clock()
        if now_s >= self._look_s and (self._thread is None or not self._thread.is_alive()):
            self._look_s = now_s + LOOK_S
            # A daemon: reading takes up to a minute, and nothing is lost with it.
            self._thread = threading.Thread(target=self.look, name="catalogue", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """Read the catalogue if its files have changed, and keep it for the loop's thread if it is good."""
        try:
            before, self._looked_at = self._looked_at, ()  # what cannot be read may come back as it was
            if version_of(self._path) == before:
                self._looked_at = before
                return
            files = CatalogueFiles(self._path)
            self._looked_at = files.version
            self._next = self._read(files)
        except Exception as error:  # noqa: BLE001  a thread that ends without a word would be a new version without one
            self._refused = True
            if not isinstance(error, SettingsError):
                self._looked_at = ()  # memory may come back, and the file is as good as it was
            log.error(  # noqa: TRY400  the reason is enough
                "the new version of the catalogue is not taken, the worker goes on with %s: %s",
                self._index.card.digest,
                error,
            )


def _log_taken(path: Path, index: CatalogueIndex) -> None:
    card = index.card
    log.info(
        "catalogue %s: %d entries, %d names, generation %d, %s",
        *(path, index.entries, index.names, card.generation, card.digest),
    )
    if index.search and index.tries:
        log.info(
            "%d names of at least %d letters are found in texts, %.0f MB",
            *(index.tries.names, index.search.min_letters, index.tries.size_bytes / 1e6),
        )
