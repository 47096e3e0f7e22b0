"""The instruments of `enricher index run`. `enricher/worker/telemetry/instruments.py` has those of the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from enricher.indexing.index_counts import INDEX_OUTCOMES, RETRY_REASONS, IndexCounts, IndexSnapshot
from enricher.worker.telemetry.instruments import (
    DESTINATION,
    ERROR_TYPE,
    OUTCOME,
    PARTITION,
    PROCESS_INSTRUMENTS,
    STATE,
    Instrument,
    Kind,
    by,
    by_partition,
    one,
    states_of,
)
from enricher.worker.telemetry.observed import WorkerFacts


@dataclass(frozen=True, slots=True)
class ObservedIndexer:
    """Everything that instruments read of an indexer. `snapshot` does not block; any thread may call it."""

    worker: WorkerFacts
    counts: IndexCounts
    snapshot: Callable[[], IndexSnapshot]


_counter, _gauge, _histogram = (partial(Instrument[ObservedIndexer], kind) for kind in Kind)

INDEX_INSTRUMENTS: tuple[Instrument[ObservedIndexer], ...] = (
    _counter("enricher.index.records", "{record}", "Records read from the output topic by an indexer.",
             lambda seen: one(seen.counts.read)),
    _counter("enricher.index.documents", "{document}",
             "Records whose outcome is known: `written` or `deleted` in the index, `older` than what it has, or a dead "
             "letter of the indexer.",
             lambda seen: by({each: seen.counts.outcomes[each] for each in INDEX_OUTCOMES}), (OUTCOME,)),
    _counter("enricher.index.retries", "{document}",
             "Documents sent again: the index was `busy` (HTTP 429), the request `too_large` (413), there was `no_answer`, "
             "or it `failed`.",
             lambda seen: by({each: seen.counts.retries[each] for each in RETRY_REASONS}), (ERROR_TYPE,)),
    _histogram("enricher.index.bulk.duration", "s", "Duration of a bulk request that was answered.",
               lambda seen: one(seen.counts.bulk_s)),
    _histogram("enricher.index.latency", "s", "Time from a record's timestamp in the output topic to the index's answer.",
               lambda seen: one(seen.counts.latency_s)),
    _gauge("enricher.index.bulk.limit", "{document}", "Most documents that a bulk request may have now.",
           lambda seen: one(seen.snapshot().most_documents)),
    _gauge("enricher.index.in_flight.documents", "{document}", "Records read and not yet done.",
           lambda seen: one(seen.snapshot().documents)),
    _gauge("enricher.index.in_flight.size", "By", "Memory of these records.",
           lambda seen: one(seen.snapshot().size_bytes)),
    _gauge("enricher.index.stuck", "s",
           "Time for which the index has taken none of the documents in hand; 0 while it does. At `index.give_up_s` the "
           "process ends.", lambda seen: one(seen.snapshot().stuck_s)),
    _counter("enricher.index.rebalances", "{rebalance}", "Rebalances in which partitions came to the indexer or left it.",
             lambda seen: one(seen.counts.rebalances)),
    _gauge("enricher.index.partitions", "{partition}", "Partitions of the output topic assigned to the indexer.",
           lambda seen: one(seen.snapshot().partitions)),
    _gauge("enricher.index.partition.lag", "{record}",
           "Offsets between the committed one and the end of a partition of the output topic.",
           lambda seen: by_partition(seen.snapshot().lags), (DESTINATION, PARTITION)),
    _gauge("enricher.index.state", "1", "1 for the current state of the indexer, 0 for the others.",
           lambda seen: states_of(seen.snapshot().state), (STATE,)),
)  # fmt: skip

EXPORTED: tuple[Instrument[ObservedIndexer], ...] = (*INDEX_INSTRUMENTS, *PROCESS_INSTRUMENTS)
"""The instruments that an indexer exports, with those that every process has."""
