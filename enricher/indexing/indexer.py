"""The indexer reads records, writes documents, writes refused records to dead letters and commits, all in one thread.

The order keeps the promise: documents are written, records that the index refuses are in the dead-letter topic, and only
then are the offsets committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from enricher.errors import RecoveryExhausted, SearchUnavailable, TooManyDeadLetters, TransactionTrouble
from enricher.indexing.bulk_writer import BulkWriter, Refusal, RetryControl
from enricher.indexing.index_documents import Document, DocumentMaker, NoDocument
from enricher.indexing.index_health import IndexCounts, IndexSnapshot
from enricher.indexing.output_reader import OutputReader
from enricher.indexing.refused_records import RefusedRecords
from enricher.indexing.search_clients import REQUEST_TIMEOUT_S
from enricher.indexing.search_index import Origins, SearchIndex
from enricher.worker.records import RawRecord
from enricher.worker.runtime.deadlines import Deadline, StopEvent
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.settings import Settings
from enricher.worker.stats import WorkerState

log = logging.getLogger(__name__)

_WAIT_S = 0.25
"""How long a poll waits for a first record, and so how long a stop may take to be noticed."""
_OPEN_AGAIN_S = 1.0
_MARGIN_S = 30.0
"""The time that the watchdog allows for calls of the clients beyond their own bounds."""


class Indexer:
    """Keeps the index of the settings up to date. A signal handler may call `stop`, any thread `snapshot`."""

    def __init__(
        self, settings: Settings, index: SearchIndex, reader: OutputReader, letters: RefusedRecords, guard: Guard
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._letters = letters
        self._guard = guard
        self._maker = DocumentMaker(settings.index.document_id, settings.articles.fields)
        self._origins = Origins(index, settings.kafka.epoch)
        self.counts = IndexCounts()
        control = RetryControl(self._serve, lambda each: reader.owns(each.raw.partition), lambda: self._stop.is_set)
        self._writer = BulkWriter(index, settings.index, control, self.counts, guard)
        self._stop = StopEvent()
        self._state = WorkerState.STARTING
        self._in_hand, self._in_hand_bytes = 0, 0

    def stop(self) -> None:
        """End after the documents in hand, or before them if the index does not take them. Never blocks."""
        self._stop.set()

    def run(self, on_connected: Callable[[], None]) -> None:
        """Run until `stop`, or until the group has caught up. `on_connected` is called once we have asked to join the group.

        Raises SettingsError, BrokerError, RecoveryExhausted, TooManyDeadLetters.
        """
        self._open()
        try:
            self._state = WorkerState.JOINING
            on_connected()
            while not self._stop.is_set:
                with self._guard("one turn of the loop", self._settings.worker.stall_timeout_s):
                    try:
                        if self._reader.caught_up():
                            self._admit((), confirm=True)
                            break
                        self._turn()
                    except TransactionTrouble as trouble:  # the index was created again, or the client cannot go on
                        log.warning("%s; joining the group again", trouble)
                        self._reader.close()
                        self._open()
        finally:
            self._state = WorkerState.DRAINING
            with self._guard("leaving the group", self._settings.worker.drain_timeout_s + _MARGIN_S):
                self._reader.close()

    def snapshot(self) -> IndexSnapshot:
        """The current state."""
        stuck_s = self._writer.stuck_s
        working = WorkerState.RECOVERING if stuck_s else self._state
        return IndexSnapshot(
            state=WorkerState.DRAINING if self._stop.is_set else working,
            partitions=self._reader.partitions,
            lags=self._reader.lags(),
            documents=self._in_hand,
            size_bytes=self._in_hand_bytes,
            most_documents=self._writer.size.documents,
            stuck_s=stuck_s,
            stuck_reason=self._writer.reason,
        )

    # ---- inside

    def _turn(self) -> None:
        records = self._reader.poll(self._settings.index.max_batch_documents, _WAIT_S)
        self._state = WorkerState.WORKING if self._reader.joined else WorkerState.JOINING
        self.counts.rebalances = self._reader.rebalances
        try:
            if self._write_all(records):
                self._reader.commit()
                if records:
                    self.counts.note_commit()
        finally:
            self._in_hand, self._in_hand_bytes = 0, 0

    def _write_all(self, records: Sequence[RawRecord]) -> bool:
        """Write every record to the index or to the dead letters; False if the indexer was asked to end before."""
        if not records:
            return True
        self.counts.count_read(len(records))
        self._in_hand, self._in_hand_bytes = len(records), sum(each.size_bytes for each in records)
        documents, refusals = self._documents_of(records)
        if documents:
            refused = self._writer.write(documents)
            if refused is None:
                return False
            refusals += refused
        self._count_row(records, refusals)
        if refusals:
            with self._guard("writing dead letters", self._settings.worker.recovery_timeout_s + _MARGIN_S):
                self._letters.write(refusals)
            self.counts.outcomes["dead_letter"] += len(refusals)
        return True

    def _documents_of(self, records: Sequence[RawRecord]) -> tuple[list[Document], list[Refusal]]:
        documents, refusals = list[Document](), list[Refusal]()
        for raw in records:
            try:
                documents.append(self._maker.document(raw))
            except NoDocument as reason:
                refusals.append(Refusal(raw, "no_document", str(reason)))
        self._admit(documents)
        admitted = list[Document]()
        for each in documents:
            try:
                self._origins.check(each)
                admitted.append(each)
            except NoDocument as reason:
                refusals.append(Refusal(each.raw, "other_origin", str(reason)))
        return admitted, refusals

    def _admit(self, documents: Sequence[Document], *, confirm: bool = False) -> None:
        """Compare the origins with the index; waits for it. `confirm`: also check that it is still the same index."""
        settings = self._settings.index
        deadline = Deadline(settings.give_up_s)
        while True:
            try:
                with self._guard("asking the search index", 5 * REQUEST_TIMEOUT_S + _MARGIN_S):
                    self._origins.admit(documents, confirm=confirm)
            except SearchUnavailable as error:
                if deadline.over or self._stop.is_set:
                    message = f"the search index did not answer for {settings.give_up_s:g} s: {error}"
                    raise RecoveryExhausted(message) from error
                self._serve(_OPEN_AGAIN_S)
            else:
                return

    def _count_row(self, records: Sequence[RawRecord], refusals: Sequence[Refusal]) -> None:
        """Count dead letters in a row. Raises TooManyDeadLetters before a letter beyond the limit is written."""
        limit, row = self._settings.dead_letters.max_in_a_row, self._reader.row
        refused = {(each.raw.partition, each.raw.offset) for each in refusals}
        for each in records:
            row = row + 1 if (each.partition, each.offset) in refused else 0
            if limit and row > limit:
                kinds = ", ".join(sorted({refusal.error_type for refusal in refusals})[:5])
                message = (
                    f"{limit} records in a row could not be indexed ({kinds}; the last: {refusals[-1].message}): is the "
                    "template installed, and were these records written by a worker? No further dead letter is written "
                    "(dead_letters.max_in_a_row)"
                )
                raise TooManyDeadLetters(message)
        self._reader.row = row

    def _serve(self, wait_s: float) -> None:
        with self._guard("waiting for the search index", wait_s + self._settings.worker.stall_timeout_s):
            self._reader.serve(wait_s)

    def _open(self) -> None:
        """Join the group as soon as the index and the brokers answer. Raises RecoveryExhausted at the bound."""
        limit_s = self._settings.worker.recovery_timeout_s
        deadline = Deadline(limit_s)
        while True:
            try:
                with self._guard("asking the search index", 5 * REQUEST_TIMEOUT_S + _MARGIN_S):
                    index_id = self._origins.identify()
                with self._guard("connecting with the brokers", limit_s + _MARGIN_S):
                    self._reader.open(index_id)
            except (TransactionTrouble, SearchUnavailable) as trouble:
                if deadline.over or self._stop.is_set:
                    raise RecoveryExhausted(str(trouble)) from trouble
                log.warning("%s", trouble)
                time.sleep(_OPEN_AGAIN_S)
            else:
                return
