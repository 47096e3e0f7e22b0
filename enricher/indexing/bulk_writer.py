"""Writes documents until each is done or refused. The others are sent again, with pauses, within a bound.

Without an answer the documents may have been written, or not, or may be written later. Their versions make it harmless to
send them again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enricher.errors import RecoveryExhausted, SearchUnavailable
from enricher.indexing.bulk_requests import DONE, Refusal, Verdict, bulk_lines, items_in, refusal_of, verdict_on
from enricher.indexing.bulk_size import BulkSize, request_bytes
from enricher.indexing.index_counts import IndexCounts
from enricher.indexing.index_documents import Document
from enricher.indexing.search_index import Reply, SearchIndex, raise_failure
from enricher.indexing.transports import REQUEST_TIMEOUT_S
from enricher.worker.runtime.deadlines import doubling_pause_s
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.settings import IndexSettings

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25
_REPEAT_S = 60.0


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
        self.size = BulkSize(settings.max_batch_documents, settings.max_batch_bytes)
        self._failures, self._failing_since_s = 0, 0.0
        self._repeats = Repeats(period_s=_REPEAT_S)
        self.reason = ""
        """Why documents were last sent again."""

    @property
    def stuck_s(self) -> float:
        """Seconds since a document was done, if those in hand have failed; else 0."""
        return time.monotonic() - self._failing_since_s if self._failures else 0.0

    def write(self, documents: Sequence[Document]) -> list[Refusal] | None:
        """Write all; returns those that the index refuses. None if it gave up before, because it was asked to.

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
        """Wait before the next try; False if it is over. Raises RecoveryExhausted at the bound."""
        if self.stuck_s > self._settings.give_up_s:
            message = f"the search index has taken no document for {self._settings.give_up_s:g} s: {self.reason}"
            raise RecoveryExhausted(message)
        self._control.serve(
            doubling_pause_s(self._failures, first_s=_FIRST_PAUSE_S, longest_s=self._settings.retry_max_s)
        )
        return not self._control.over()
