"""Writes documents until each is written or refused. Documents that are neither are sent again, with pauses, within a bound.

Without an answer the documents may have been written, or not, or may be written later. Their versions make it harmless to
send them again. `BulkSize` and the lines and verdicts of a request, below the writer, are pure.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from enricher.errors import RecoveryExhausted, SearchUnavailable
from enricher.indexing.index_documents import Document
from enricher.indexing.index_health import IndexCounts
from enricher.indexing.search_clients import REQUEST_TIMEOUT_S
from enricher.indexing.search_index import Reply, SearchIndex, raise_failure
from enricher.worker.records import RawRecord
from enricher.worker.runtime.deadlines import doubling_pause_s
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.settings import IndexSettings

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25
_REPEAT_S = 60.0
_MAX_BATCH_BYTES = 8_000_000
"""The most bytes of one request, unless a single document is larger. A node refuses more than 100 MB by default, and one
with a lower limit answers 413, which halves the request."""


@dataclass(frozen=True, slots=True)
class RetryControl:
    """The functions that the writer calls between two tries. `serve` waits so many seconds as a member of the group.

    `wants`: whether the partition of a document is still ours. `over`: whether to give up.
    """

    serve: Callable[[float], None]
    wants: Callable[[Document], bool]
    over: Callable[[], bool]


class BulkWriter:
    """Writes to one index. For one thread, except for `stuck_s` and `reason`."""

    def __init__(
        self, index: SearchIndex, settings: IndexSettings, control: RetryControl, counts: IndexCounts, guard: Guard
    ) -> None:
        self._index = index
        self._settings = settings
        self._control = control
        self._counts = counts
        self._guard = guard
        self.size = BulkSize(settings.max_batch_documents, _MAX_BATCH_BYTES)
        self._failures, self._failing_since_s = 0, 0.0
        self._repeats = Repeats(period_s=_REPEAT_S)
        self.reason = ""
        """Why documents were last sent again."""

    @property
    def stuck_s(self) -> float:
        """Seconds since the index took a document, if the documents in hand have failed; else 0."""
        return time.monotonic() - self._failing_since_s if self._failures else 0.0

    def write(self, documents: Sequence[Document]) -> list[Refusal] | None:
        """Write all documents; returns the refused ones, or None if it was asked to give up before.

        Raises RecoveryExhausted after `index.give_up_s` in which none was done, and BrokerError if the index refuses us.
        """
        left, refusals = list(documents), list[Refusal]()
        while left:
            part = self.size.take(left)
            again, refused = self._send(part)
            refusals += refused
            left[: len(part)] = again
            if len(again) < len(part):
                self._failures, self._failing_since_s = min(1, len(again)), time.monotonic()
            if again and self._failures:
                if not self._pause():
                    return None
                left = [each for each in left if self._control.wants(each)]
        return refusals

    def _send(self, part: Sequence[Document]) -> tuple[list[Document], list[Refusal]]:
        """Send one request; returns the documents to send again, and the refused ones."""
        began_s = time.monotonic()
        try:
            with self._guard("writing to the search index", 2 * REQUEST_TIMEOUT_S + _REPEAT_S):
                reply = self._index.bulk(bulk_lines(part))
        except SearchUnavailable as error:
            return self._note_retry(part, "no_answer", str(error)), []
        self._counts.bulk_s.add(time.monotonic() - began_s)
        if reply.status == 413:
            return self._split(part)
        if not 200 <= reply.status < 300:
            return self._retry_whole(part, reply), []
        items = items_in(reply.body, len(part))
        if items is None:
            return self._note_retry(part, "failed", "this is not the answer to a bulk request"), []
        return self._judge(
            part, [(verdict_on(each, item["status"]), item) for each, item in zip(part, items, strict=True)]
        )

    def _judge(
        self, part: Sequence[Document], results: Sequence[tuple[Verdict, Mapping[str, Any]]]
    ) -> tuple[list[Document], list[Refusal]]:
        busy, failed, refusals = list[Document](), list[Document](), list[Refusal]()
        now_s = time.time()
        for document, (verdict, item) in zip(part, results, strict=True):
            if verdict in DONE:
                self._counts.outcomes[verdict] += 1
                if document.raw.timestamp_s:
                    self._counts.latency_s.add(max(0.0, now_s - document.raw.timestamp_s))
            elif verdict == "refused":
                refusals.append(refusal_of(document, item))
            else:
                (busy if verdict == "busy" else failed).append(document)
                reason = f"documents are answered with status {item['status']}"
        if busy:
            self._note_retry(busy, "busy", reason)
        if failed:
            self._note_retry(failed, "failed", reason)
        else:
            self.size.note_taken(len(part) - len(busy), len(part))
        return [*busy, *failed], refusals

    def _retry_whole(self, part: Sequence[Document], reply: Reply) -> list[Document]:
        is_busy = reply.status == 429
        if is_busy:
            self.size.note_taken(0, len(part))
        try:
            raise_failure(reply, "writing to the search index")
        except SearchUnavailable as error:
            return self._note_retry(part, "busy" if is_busy else "failed", str(error))

    def _split(self, part: Sequence[Document]) -> tuple[list[Document], list[Refusal]]:
        """Handle a request that is too large. If it has a single document, the document is refused."""
        if len(part) == 1:
            message = f"the index answers with status 413 to a request of {request_bytes(part[0])} bytes"
            return [], [Refusal(part[0].raw, "request_too_large", message)]
        self.size.note_too_large(sum(map(request_bytes, part)))
        # This is no failure: smaller requests are sent without a pause.
        self._counts.retries["too_large"] += len(part)
        return list(part), []

    def _note_retry(self, part: Sequence[Document], why: str, reason: str) -> list[Document]:
        self._counts.retries[why] += len(part)
        if not self._failures:
            self._failing_since_s = time.monotonic()
        self._failures += 1
        self.reason = reason
        if self._repeats.is_new(why):
            log.warning("%d documents are sent again: %s", len(part), reason)
        return list(part)

    def _pause(self) -> bool:
        """Wait before the next try; False if there is none. Raises RecoveryExhausted at the bound."""
        if self.stuck_s > self._settings.give_up_s:
            message = f"the search index has taken no document for {self._settings.give_up_s:g} s: {self.reason}"
            raise RecoveryExhausted(message)
        self._control.serve(
            doubling_pause_s(self._failures, first_s=_FIRST_PAUSE_S, longest_s=self._settings.retry_max_s)
        )
        return not self._control.over()


_FIRST_SHARE = 4
_GROWTH = 1.25
_LINE_BYTES = 120
"""Bytes of an action's first line besides the id."""


class BulkSize:
    """The most documents and bytes of the next request."""

    def __init__(self, max_documents: int, max_bytes: int) -> None:
        self._max_documents = max_documents
        self.documents = max(1, max_documents // _FIRST_SHARE)
        self.bytes = float(max_bytes)

    def take(self, documents: Sequence[Document]) -> Sequence[Document]:
        """The first documents, as many as fit, but at least one."""
        size_bytes, count = 0, 0
        for each in documents[: self.documents]:
            size_bytes += request_bytes(each)
            if count and size_bytes > self.bytes:
                break
            count += 1
        return documents[:count]

    def note_taken(self, taken: int, sent: int) -> None:
        """Note that the index took so many documents of a request, and had too much to do for the rest.

        Each shard takes or refuses its share of a request as a whole. A request of which at least half was taken counts as
        taken, because smaller requests would only be more. Only full requests show that larger ones would be taken too.
        """
        if not taken:
            self.documents = max(1, min(self.documents, sent) // 2)
            return
        if sent >= self.documents and 2 * taken >= sent:
            self.documents = min(self._max_documents, int(self.documents * _GROWTH) + 1)

    def note_too_large(self, size_bytes: int) -> None:
        """Note that a request of so many bytes is too large for the index, whose limit does not change."""
        self.bytes = size_bytes / 2


def request_bytes(document: Document) -> int:
    """Bytes of a document in a request."""
    return len(document.body or b"") + len(document.id) + _LINE_BYTES


Verdict = Literal["written", "deleted", "older", "busy", "failed", "refused"]
"""The result for a document. After the first three it is done; after `busy` and `failed` it is sent again."""

DONE: frozenset[Verdict] = frozenset({"written", "deleted", "older"})
_NOT_THE_DOCUMENTS = frozenset({401, 403, 404, 408})
"""Statuses for a missing right or index, or a block (a disk is too full). The document can be written once an operator has
acted."""
_FIELD = re.compile(r"\bfield \[([A-Za-z_]{1,64})[.\]]")
_MAX_TYPE_CHARS = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that the index will never take. `message` contains none of its text."""

    raw: RawRecord
    error_type: str
    message: str


def bulk_lines(documents: Iterable[Document]) -> bytes:
    """The actions in order, each with its version: the index refuses a version that is older than what it has."""
    lines: list[bytes] = []
    for each in documents:
        meta = {"_id": each.id, "version": each.version, "version_type": "external_gte"}
        lines.append(orjson.dumps({"delete" if each.body is None else "index": meta}))
        if each.body is not None:
            lines.append(each.body)
    lines.append(b"")
    return b"\n".join(lines)


def verdict_on(document: Document, status: int) -> Verdict:
    """The meaning of one action's status."""
    if 200 <= status < 300:
        return "deleted" if document.body is None else "written"
    if status == 409:
        return "older"
    if status == 404 and document.body is None:
        return "deleted"  # the document was missing, and the index keeps the version of the deletion
    if status == 429:
        return "busy"
    return "failed" if status in _NOT_THE_DOCUMENTS or status >= 500 else "refused"


def items_in(answer: Any, expected: int) -> list[Mapping[str, Any]] | None:  # noqa: ANN401  parsed JSON
    """The result of each action, in order; None if this is not the answer to a bulk request of so many actions."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != expected:
        return None
    results = [each for item in items if isinstance(item, dict) for each in item.values()]
    is_whole = all(isinstance(each, dict) and isinstance(each.get("status"), int) for each in results)
    return results if is_whole and len(results) == expected else None


def refusal_of(document: Document, item: Mapping[str, Any]) -> Refusal:
    """The reason, without text of the document: the type of the error, and the field of ours that it names."""
    error = item.get("error")
    error = error if isinstance(error, dict) else {}
    kind = re.sub(r"[^\w.-]", "", str(error.get("type", "")))[:_MAX_TYPE_CHARS] or "unknown"
    named = _FIELD.search(str(error.get("reason", ""))[:1000])
    ours = orjson.loads(document.body) if document.body and named else {}
    where = f" in the field '{named[1]}'" if named and named[1] in ours else ""
    return Refusal(document.raw, kind, f"the index answers with status {item['status']}{where}")
