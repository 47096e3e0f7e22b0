"""Every instrument: name, kind, unit, description, attributes, and what it reads. The only list of them.

The pages, the dashboard, the alerts and the tests are made from it or compared with it. Names of messaging, processes and
GPUs are those of OpenTelemetry's semantic conventions; ours begin with `enricher.`. No value of an attribute comes from
an article: each is one of a few that the program, its settings or its topics know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from enricher.stats.histogram import Histogram
from enricher.telemetry import readings
from enricher.telemetry.observed import Observed, cpu_s
from enricher.telemetry.readings import (
    DESTINATION,
    ERROR_TYPE,
    GPU,
    GROUP,
    MODEL,
    OPERATION,
    OUTCOME,
    PARTITION,
    REASON,
    REBALANCE,
    STAGE,
    STATE,
    SYSTEM,
    TOKEN_KIND,
    Attributes,
    Numbers,
    one,
)


class Kind(Enum):
    """As OpenTelemetry names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric. `unit` is in UCUM, with `{...}` around what is merely counted.

    `numbers` reads a counter or a gauge, `histogram` a histogram: one of them is there. `attributes` are the names of
    all that its numbers carry.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    numbers: Callable[[Observed], Numbers] | None = None
    histogram: Callable[[Observed], tuple[Histogram, Attributes]] | None = None


def _counter(
    name: str, unit: str, description: str, numbers: Callable[[Observed], Numbers], *attributes: str
) -> Instrument:
    return Instrument(name, Kind.COUNTER, unit, description, attributes, numbers=numbers)


def _gauge(
    name: str, unit: str, description: str, numbers: Callable[[Observed], Numbers], *attributes: str
) -> Instrument:
    return Instrument(name, Kind.GAUGE, unit, description, attributes, numbers=numbers)


def _histogram(
    name: str,
    unit: str,
    description: str,
    histogram: Callable[[Observed], tuple[Histogram, Attributes]],
    *attributes: str,
) -> Instrument:
    return Instrument(name, Kind.HISTOGRAM, unit, description, attributes, histogram=histogram)


INSTRUMENTS: tuple[Instrument, ...] = (
    # ---- messaging, by the semantic conventions
    _counter("messaging.client.consumed.messages", "{message}", "Records read from the input topic.", readings.consumed,
             SYSTEM, OPERATION, DESTINATION, GROUP),
    _counter("messaging.client.sent.messages", "{message}", "Records written and committed.", readings.sent,
             SYSTEM, OPERATION, DESTINATION),
    _histogram("messaging.client.operation.duration", "s", "A whole transaction: records, offsets, commit.",
               readings.transaction_time, SYSTEM, OPERATION, GROUP),
    _histogram("messaging.process.duration", "s", "An article, from its arrival in the worker to its commit.",
               readings.process_time, SYSTEM, OPERATION, DESTINATION, GROUP),
    # ---- articles
    _counter("enricher.articles", "{article}", "Inputs dealt with for good, and committed.", readings.articles, OUTCOME),
    _counter("enricher.dead_letters", "{article}", "Inputs that can never be enriched, by reason.", readings.dead_letters,
             STAGE, ERROR_TYPE),
    _counter("enricher.entities", "{entity}", "Entities found.", lambda seen: one(seen.counters.entities)),
    _histogram("enricher.article.latency", "s", "An article, from its timestamp in Kafka to the commit of its record.",
               lambda seen: (seen.counters.latency_s, {})),
    _gauge("enricher.oldest.age", "s", "Age of the oldest unprocessed record that the worker knows of; it grows while no "
           "broker answers, and is 0 at the end of the topic.", lambda seen: one(seen.snapshot().oldest_age_s)),
    _counter("enricher.articles.forgotten", "{article}", "Read, and left to be read again: by this worker after trouble, "
             "by the next owner after a rebalance.", lambda seen: one(seen.counters.forgotten)),
    _counter("enricher.articles.repeated", "{article}", "Read again by this process.",
             lambda seen: one(seen.counters.repeated)),
    # ---- batches and the model
    _counter("enricher.windows", "{window}", "Windows that went to the model.", lambda seen: one(seen.counters.windows)),
    _counter("enricher.batches", "{batch}", "Batches that went to the model.", lambda seen: one(seen.counters.batches)),
    _counter("enricher.tokens", "{token}", "Tokens that the device computed: of texts, and padding.", readings.tokens,
             TOKEN_KIND),
    _histogram("enricher.batch.fill", "1", "Tokens of a batch, padding included, over the most that one may have.",
               lambda seen: (seen.counters.batch_fill, {})),
    _histogram("enricher.batch.wait", "s", "Wait of a batch's oldest window in its bucket.",
               lambda seen: (seen.counters.batch_wait_s, {})),
    _gauge("enricher.batch.budget", "{token}", "The most that a batch may have now; lower after the device ran out of "
           "memory.", lambda seen: one(seen.snapshot().budget_tokens)),
    _counter("enricher.engine.busy.time", "s", "Time of runs of the model, summed over its threads.",
             lambda seen: one(seen.snapshot().engine_busy_s)),
    _counter("enricher.engine.starved.time", "s", "Time of threads without work though there was a backlog.",
             lambda seen: one(seen.snapshot().engine_starved_s)),
    _counter("enricher.engine.out_of_memory", "{batch}", "Batches that the device had no memory for, and that went "
             "through in parts.", lambda seen: one(seen.counters.out_of_memory)),
    _gauge("enricher.engine.concurrency", "{run}", "Runs at the same time.", lambda seen: one(seen.snapshot().concurrency)),
    _gauge("enricher.model.info", "1", "Always 1: which model serves, in which precision, and on what.", readings.model,
           *MODEL),
    # ---- queues
    _gauge("enricher.queue.windows", "{window}", "Windows that wait for a batch.",
           lambda seen: one(seen.snapshot().queued_windows)),
    _gauge("enricher.queue.tokens", "{token}", "Their tokens.", lambda seen: one(seen.snapshot().queued_tokens)),
    _gauge("enricher.in_flight.articles", "{article}", "Read, and not yet committed.",
           lambda seen: one(seen.snapshot().in_flight_articles)),
    _gauge("enricher.in_flight.size", "By", "What their keys, values and headers take in memory.",
           lambda seen: one(seen.snapshot().in_flight_bytes)),
    _gauge("enricher.held_back.articles", "{article}", "Finished, but behind an unfinished offset of their partition.",
           lambda seen: one(seen.snapshot().held_back_articles)),
    # ---- exactly once
    _counter("enricher.transactions", "{transaction}", "Transactions: committed, or failed and followed by a recovery.",
             readings.transactions, OUTCOME),
    _counter("enricher.producers.recreated", "{producer}", "Producers replaced: after trouble, or after a transaction "
             "that succeeded slowly.", readings.producers, REASON),
    _counter("enricher.recoveries", "{recovery}", "Ways back from trouble that were begun.",
             lambda seen: one(seen.counters.recoveries)),
    _histogram("enricher.recovery.duration", "s", "A recovery, all its attempts.",
               lambda seen: (seen.counters.recovery_s, {})),
    _counter("enricher.isolations", "{partition}", "Partitions whose articles were taken one at a time, because processes "
             "had ended there again and again.", lambda seen: one(seen.counters.isolations)),
    _counter("enricher.rebalances", "{rebalance}", "Partitions came, were taken in order, or were lost.",
             readings.rebalances, REBALANCE),
    # ---- the group and the broker
    _gauge("enricher.partitions", "{partition}", "Partitions of the input topic that are this worker's.",
           lambda seen: one(seen.snapshot().partitions)),
    _gauge("enricher.partition.lag", "{record}", "Offsets between the committed one and the end; transaction markers count, "
           "so it may stay above 0.", readings.lags, DESTINATION, PARTITION),
    _gauge("enricher.partition.unstable", "{record}", "Offsets behind the last stable one: no reader of committed records "
           "gets them before an open transaction of the publisher ends.", readings.unstable_offsets, DESTINATION,
           PARTITION),
    _gauge("enricher.partition.unstable.age", "s", "For how long the last stable offset has not moved, though there are "
           "offsets behind it; 0 where there are none.", readings.unstable_ages, DESTINATION, PARTITION),
    _gauge("enricher.topic.partitions", "{partition}", "Partitions of the input topic and of the two output topics; the "
           "three should have the same number.", readings.topic_partitions, DESTINATION),
    _gauge("enricher.kafka.brokers", "{broker}", "Brokers that the consumer is connected with.", readings.brokers),
    # ---- the process
    _gauge("enricher.state", "1", "1 for the state that the worker is in, 0 for the others.", readings.states, STATE),
    _gauge("enricher.loop.turn.age", "s", "Since the loop began a turn; 0 in a recovery, whose attempts have bounds of "
           "their own.", lambda seen: one(seen.snapshot().turn_age_s)),
    _counter("process.cpu.time", "s", "Processor time of the process.", lambda _seen: one(cpu_s())),
    _gauge("process.memory.usage", "By", "Memory of the process that is in RAM (Linux).", readings.resident),
    # ---- the GPU, where NVML is there
    _gauge("hw.gpu.utilization", "1", "Share of time in which a kernel ran.",
           lambda seen: [(gpu.utilization, {GPU: gpu.name}) for gpu in seen.gpus()], GPU),
    _gauge("hw.gpu.memory.usage", "By", "Memory in use on the GPU, by all processes.",
           lambda seen: [(gpu.used_bytes, {GPU: gpu.name}) for gpu in seen.gpus()], GPU),
    _gauge("hw.gpu.memory.limit", "By", "Memory of the GPU.",
           lambda seen: [(gpu.total_bytes, {GPU: gpu.name}) for gpu in seen.gpus()], GPU),
)  # fmt: skip
"""In the order in which people look."""
