"""Notes in the mapping of an index its id, and which topics its versions come from.

Versions of one epoch are comparable only within one topic: in a topic that was deleted and created again offsets begin at 0,
so old articles would win against new ones. And the records that the group has committed are in one index only: an index that
was deleted and created again lacks them all. So the index has an id, which is committed with the offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from enricher.errors import SettingsError, TransactionTrouble
from enricher.indexing.index_documents import Document, NoDocument, Origin
from enricher.indexing.search_index import SearchIndex

log = logging.getLogger(__name__)

_READ_AGAIN_S = 30.0
"""The note is read again after this time: another indexer may have noted a newer epoch meanwhile."""
_FIELD = "enricher"


class Origins:
    """The id of an index, and the origins of the epochs in it. For one thread.

    `epoch`: the setting `kafka.epoch`, which is raised when the input topic is created again.
    """

    def __init__(self, index: SearchIndex, epoch: int) -> None:
        self._index = index
        self._epoch = epoch
        self._known: dict[int, tuple[str, str | None]] = {}
        """The topic and its id by epoch."""
        self._read_s = 0.0
        self._meta: Mapping[str, Any] = {}
        """The whole `_meta` of the mapping, as it was last read."""
        self._id: str | None = None

    def identify(self) -> str:
        """Create the index if it is missing, and give it an id if it has none. Raises what the index raises."""
        self._id, self._known = None, {}
        if self._index.meta() is None and self._index.create():  # creating may need a right that writing does not
            log.warning(
                "the index '%s' is new: it has the mapping of the template that fits its name, if any", self._index.name
            )
        self._read()
        if self._id is None:
            self._id = uuid4().hex[:16]
            self._write()
            self._read()  # another indexer may have given it one at the same time
        return self._id

    def admit(self, documents: Iterable[Document], *, confirm: bool = False) -> None:
        """Note the origins of new epochs. Raises SettingsError if the newest epoch has another one.

        Raises TransactionTrouble if this is no longer the index that `identify` found, which is noticed within 30 s, or with
        `confirm` at once. Raises what the index raises.
        """
        found = {each.origin for each in documents}
        if (
            confirm
            or time.monotonic() - self._read_s > _READ_AGAIN_S
            or any(each.epoch not in self._known for each in found)
        ):
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
        """Raise NoDocument if the version is of an epoch that belongs to another topic: then versions cannot be compared."""
        if not self._is_of(document.origin):
            raise NoDocument(
                f"its version is of epoch {document.origin.epoch}, which belongs to another topic: enrich it again, with a "
                "higher kafka.epoch"
            )

    def _is_of(self, origin: Origin) -> bool:
        topic, topic_id = self._known.get(origin.epoch, (origin.topic, origin.topic_id))
        return topic == origin.topic and (topic_id == origin.topic_id or None in {topic_id, origin.topic_id})

    def _read(self) -> None:
        self._meta = self._index.meta() or {}
        noted = self._meta.get(_FIELD)
        noted = noted if isinstance(noted, dict) else {}
        self._read_s = time.monotonic()
        if self._id is not None and noted.get("index_id") != self._id:
            raise TransactionTrouble(f"the index '{self._index.name}' was made again, or another one has its name now")
        self._id = noted.get("index_id")
        each: Any
        for each in (noted, *noted.get("before", ())):
            if "epoch" in each:
                self._known[int(each["epoch"])] = str(each["input_topic"]), each.get("input_topic_id")

    def _write(self) -> None:
        noted = [
            {"input_topic": topic, "input_topic_id": topic_id, "epoch": epoch}
            for epoch, (topic, topic_id) in sorted(self._known.items(), reverse=True)
        ]
        newest: dict[str, object] = {**noted[0], "before": noted[1:]} if noted else {}
        self._index.put_meta({**self._meta, _FIELD: {"index_id": self._id, **newest}})
        for epoch, (topic, topic_id) in [max(self._known.items())] if noted else []:
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
