"""Which topic the versions in the index come from: kept beside its mapping, so that a topic made again is noticed.

Versions of one epoch are comparable only within one topic: in a topic that was deleted and created again offsets begin at 0,
and every new article would lose against the old ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from enricher.errors import SettingsError
from enricher.indexing.index_documents import Document, NoDocument, Origin
from enricher.indexing.search_index import SearchIndex

log = logging.getLogger(__name__)

_READ_AGAIN_S = 30.0
"""Another indexer may have noted a newer epoch meanwhile."""
_FIELD = "enricher"


class Origins:
    """The origin of the newest epoch in the index, and of those before. For one thread.

    `epoch`: the setting `kafka.epoch`; raising it tells that the topic was made again.
    """

    def __init__(self, index: SearchIndex, epoch: int) -> None:
        self._index = index
        self._epoch = epoch
        self._known: dict[int, tuple[str, str | None]] = {}
        """The topic and its id by epoch."""
        self._read_s = 0.0

    def admit(self, documents: Iterable[Document]) -> None:
        """Note the origins of new epochs. Raises SettingsError if the newest epoch has another one.

        Also raises what the index raises.
        """
        found = {each.origin for each in documents}
        if time.monotonic() - self._read_s > _READ_AGAIN_S or any(each.epoch not in self._known for each in found):
            self._read()
        new = {each.epoch: (each.topic, each.topic_id) for each in sorted(found, key=lambda each: each.epoch)}
        if new.keys() - self._known.keys():
            self._known = new | self._known
            self._write()
        newest = max(self._epoch, *self._known, 0)
        for each in found:
            if each.epoch == newest and not self._is_of(each):
                raise SettingsError(self._complaint(each))

    def check(self, document: Document) -> None:
        """Raise NoDocument if the version is of an epoch that another topic had: nothing can be compared with it."""
        if not self._is_of(document.origin):
            raise NoDocument(
                f"its version is of epoch {document.origin.epoch}, which is that of another topic: enrich it again, with a "
                "higher kafka.epoch"
            )

    def _is_of(self, origin: Origin) -> bool:
        topic, topic_id = self._known.get(origin.epoch, (origin.topic, origin.topic_id))
        return topic == origin.topic and (topic_id == origin.topic_id or None in {topic_id, origin.topic_id})

    def _read(self) -> None:
        noted = (self._index.meta() or {}).get(_FIELD)
        self._read_s = time.monotonic()
        if isinstance(noted, dict) and "epoch" in noted:
            each: Any
            for each in (noted, *noted.get("before", ())):
                self._known[int(each["epoch"])] = str(each["input_topic"]), each.get("input_topic_id")

    def _write(self) -> None:
        noted = [
            {"input_topic": topic, "input_topic_id": topic_id, "epoch": epoch}
            for epoch, (topic, topic_id) in sorted(self._known.items(), reverse=True)
        ]
        self._index.put_meta({**(self._index.meta() or {}), _FIELD: {**noted[0], "before": noted[1:]}})
        epoch, (topic, topic_id) = max(self._known.items())
        log.info("the index has versions of epoch %d from '%s', id %s", epoch, topic, topic_id)

    def _complaint(self, origin: Origin) -> str:
        topic, topic_id = self._known[origin.epoch]
        newer = origin.epoch + 1
        return (
            f"records come from '{origin.topic}' with the topic id {origin.topic_id}, but the index has versions of epoch "
            f"{origin.epoch} from '{topic}' with the topic id {topic_id}: the input topic was made again, and its versions "
            f"begin below those in the index. Set ENRICHER_KAFKA__EPOCH={newer} for workers and indexers, and "
            f"enrich again what was made meanwhile (enricher replay)"
        )
