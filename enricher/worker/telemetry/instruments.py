"""The list of all instruments: name, kind, unit, description, attributes, and the function that reads the numbers.

Docs, dashboard, alerts and tests are generated from this list or compared with it. Instruments for messaging, processes and
GPUs have the names of OpenTelemetry's semantic conventions; our own begin with `enricher.`. No attribute value comes from an
article, so their number is bounded by the program, its settings and its topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, TypeVar

from enricher.worker.records import Partition
from enricher.worker.stats import REQUEST_OUTCOMES, Histogram, Snapshot, WorkerState
from enricher.worker.telemetry.observed import Observed, resident_bytes

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
ERROR_TYPE = "error.type"
OUTCOME = "enricher.outcome"
TASK = "enricher.task"
LABEL = "enricher.label"
GPU = "hw.name"
MODEL = (
    "enricher.model.name",
    "enricher.model.digest",
    "enricher.model.precision",
    "enricher.provider",
    "enricher.device",
    "service.version",
)
STATE = "enricher.state"


class Kind(Enum):
    """Kinds of instruments, by OpenTelemetry's names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Seen_contra = TypeVar("Seen_contra", contravariant=True)


# No slots: a generic class with slots cannot be instantiated as `Instrument[...](...)`.
@dataclass(frozen=True)
class Instrument(Generic[Seen_contra]):
    """One metric. `unit` is in UCUM, with `{...}` around things that are counted.

    `read` gives its numbers or histograms, each with a value for each attribute.
    """

    kind: Kind
    name: str
    unit: str
    description: str
    read: Callable[[Seen_contra], Numbers]
    attributes: tuple[str, ...] = ()


TASK_OUTCOMES = ("ran", "skipped", "failed")
Numbers = Iterable[tuple[float | Histogram, tuple[str, ...]]]


def one(number: float | Histogram | None, *values: str) -> Numbers:
    """A single number, or none if it is not known."""
    return () if number is None else ((number, values),)


def by(numbers: Mapping[str, float]) -> Numbers:
    """Numbers by the value of their only attribute."""
    return [(number, (value,)) for value, number in numbers.items()]


def by_partition(numbers: Mapping[Partition, float]) -> Numbers:
    """Numbers by topic and partition."""
    return [(number, (each.topic, str(each.number))) for each, number in numbers.items()]


def sent_messages(seen: Observed) -> Numbers:
    """Records written and committed, by topic; tombstones count as records."""
    counters = seen.counters
    yield counters.records + counters.tombstones, ("kafka", "send", seen.worker.output_topic)
    yield counters.dead_letters.total(), ("kafka", "send", seen.worker.dead_letter_topic)


def dead_letters(seen: Observed) -> Numbers:
    """Dead letters by stage and error type."""
    for reason, count in list(seen.counters.dead_letters.items()):
        stage, _, error_type = reason.partition(":")
        yield count, (stage, error_type)


def articles(seen: Observed) -> Numbers:
    """Committed inputs by outcome."""
    counters = seen.counters
    dead_letters = counters.dead_letters.total()
    written = {"enriched": counters.records, "tombstone": counters.tombstones, "dead_letter": dead_letters}
    return by({**written, "skipped": counters.skipped})


def tokens(seen: Observed) -> Numbers:
    """Computed tokens: tokens of texts, and padding."""
    real, padded = seen.counters.real_tokens, seen.counters.padded_tokens
    return by({"real": real, "padding": max(0, padded - real)})


def task_articles(seen: Observed) -> Numbers:
    """Articles by task and outcome."""
    for name, outcomes in seen.counters.tasks.copy().items():
        for outcome in TASK_OUTCOMES:
            yield outcomes[outcome], (name, outcome)


def without_task(seen: Observed) -> Numbers:
    """Articles that no task was for, by reason; none for a worker without tasks in its settings."""
    counters = seen.counters
    return by(
        {reason: counters.without_task[reason] for reason in ("other_language", "no_language")}
        if counters.tasks
        else {}
    )


def labels(seen: Observed) -> Numbers:
    """Labels found, by task and label."""
    return [(count, pair) for pair, count in seen.counters.labels.copy().items()]


def links(seen: Observed) -> Numbers:
    """Entities that were looked up in the catalogue, by label and outcome."""
    return [(count, (label, outcome)) for (outcome, label), count in seen.counters.links.copy().items()]


def waiting_articles(now: Snapshot) -> Numbers:
    """Articles that wait for their schema; no number if articles need no schemas."""
    return one(now.waiting_articles if now.schemas else None)


def waiting_partitions(now: Snapshot) -> Numbers:
    """Partitions with articles that wait for their schema; no number if articles need no schemas."""
    return one(len(now.waiting) if now.schemas else None)


def requests(now: Snapshot) -> Numbers:
    """Requests for schemas by outcome, also outcomes that have not occurred."""
    return by({outcome: now.schemas.requests.get(outcome, 0) for outcome in REQUEST_OUTCOMES} if now.schemas else {})


def registry_away(now: Snapshot) -> Numbers:
    """Seconds for which a schema could not be fetched."""
    return one(now.schemas.away_s if now.schemas else None)


def states_of(now: WorkerState) -> Numbers:
    """A number for every state: 1 for the given state, else 0."""
    return by({state.value: float(state is now) for state in WorkerState})


def model_info(seen: Observed) -> Numbers:
    """1, with the model, its precision and its device as attributes."""
    model = seen.model
    return one(1.0, model.name, model.digest, model.precision, model.provider, model.device, seen.worker.version)


_counter, _gauge, _histogram = (partial(Instrument[Observed], kind) for kind in Kind)
PROCESS_INSTRUMENTS: tuple[Instrument[object], ...] = (
    Instrument(Kind.COUNTER, "process.cpu.time", "s", "Processor time of the process, user and system.",
             lambda _seen: one(time.process_time())),
    Instrument(Kind.GAUGE, "process.memory.usage", "By", "Resident memory of the process (Linux only).",
           lambda _seen: one(resident_bytes())),
)  # fmt: skip
"""Instruments that every process has."""
INSTRUMENTS: tuple[Instrument[Observed], ...] = (
    # ---- messaging: names from the semantic conventions
    _counter("messaging.client.consumed.messages", "{message}", "Records read from the input topic.",
             lambda seen: one(seen.counters.read, "kafka", "poll", seen.worker.input_topic, seen.worker.group),
             (SYSTEM, OPERATION, DESTINATION, GROUP)),
    _counter("messaging.client.sent.messages", "{message}", "Records written and committed.",
             sent_messages, (SYSTEM, OPERATION, DESTINATION)),
    _histogram("messaging.client.operation.duration", "s",
               "Duration of a transaction: writing records, sending offsets, commit.",
               lambda seen: one(seen.counters.transaction_s, "kafka", "commit", seen.worker.group),
               (SYSTEM, OPERATION, GROUP)),
    _histogram("messaging.process.duration", "s", "Time from an article's arrival in the worker to its commit.",
               lambda seen: one(seen.counters.process_s, "kafka", "process", seen.worker.input_topic, seen.worker.group),
               (SYSTEM, OPERATION, DESTINATION, GROUP)),
    # ---- articles
    _counter("enricher.articles", "{article}", "Inputs whose outcome is committed.", articles, (OUTCOME,)),
    _counter("enricher.dead_letters", "{article}", "Inputs that can never be enriched, by stage and error type.",
             dead_letters, ("enricher.stage", ERROR_TYPE)),
    _gauge("enricher.dead_letters.limit.used", "1",
           "How much of each limit in `dead_letters` this process has used up. At 1 the worker ends "
           "before the next dead letter.",
           lambda seen: by(seen.snapshot().dead_letter_limits), ("enricher.limit",)),
    _counter("enricher.articles.fields.dropped", "{field}",
             "Optional fields of committed articles that were of another type or too long, and were dropped, by name.",
             lambda seen: by(seen.counters.dropped_fields.copy()), ("enricher.field",)),
    _counter("enricher.transform.time", "s",
             "Time in your own functions, `articles` before the model and `output` after it: it is time of the loop.",
             lambda seen: by({"articles": 0.0, "output": 0.0, **seen.counters.transform_s}), ("enricher.transform",)),
    _counter("enricher.catalogue.entities", "{entity}",
             "Entities that were looked up in the catalogue, by label: `matched` have an `id`, `ambiguous` only `ids`, "
             "`unmatched` neither; `found` were missed by the model, and found in the text. Labels beyond 64 are `other`.",
             links, (LABEL, OUTCOME)),
    _gauge("enricher.catalogue.age", "s", "Time since the newest file of the catalogue in use was written.",
           lambda seen: one(seen.catalogue_age_s)),
    _gauge("enricher.catalogue.refused", "{catalogue}",
           "1 if there is a newer version of the catalogue that is wrong, so that it is not in use; the log says why.",
           lambda seen: one(seen.catalogue_refused)),
    _counter("enricher.entities", "{entity}", "Entities in committed records.",
             lambda seen: one(seen.counters.entities)),
    _histogram("enricher.article.latency", "s",
               "Time from an article's timestamp in Kafka to the commit of its record.",
               lambda seen: one(seen.counters.latency_s)),
    _gauge("enricher.oldest.age", "s",
           "Age of the oldest unprocessed record that the worker knows of. It grows while no broker answers, and "
           "is 0 when the worker has reached the end of the topic.",
           lambda seen: one(seen.snapshot().oldest_age_s)),
    _counter("enricher.articles.forgotten", "{article}",
             "Articles read and dropped before their commit: this worker reads them again after a recovery, the "
             "next owner after a rebalance.", lambda seen: one(seen.counters.forgotten)),
    _counter("enricher.articles.repeated", "{article}", "Articles that this process has read more than once.",
             lambda seen: one(seen.counters.repeated)),
    # ---- labels and tasks
    _counter("enricher.labels", "{label}",
             "Entities and classes in committed records, by task and label. Without tasks in the settings the task is "
             "`ner`; labels beyond 64 of a task are `other`.", labels, (TASK, LABEL)),
    _counter("enricher.task.articles", "{article}",
             "Committed articles by task: it `ran`, was `skipped` because of the article's language, or `failed`, so that "
             "the article is a dead letter.",
             task_articles, (TASK, OUTCOME)),
    _counter("enricher.articles.without_task", "{article}",
             "Committed articles that no task was for, so that their records are empty: those in an `other_language` than "
             "all tasks, which the log names, and those with `no_language`.",
             without_task, ("enricher.reason",)),
    _counter("enricher.articles.unmeasured", "{article}",
             "Committed articles in a language that a model which answered them was not measured in, as `enricher.json` in "
             "its folder says; the log names each such language.", lambda seen: one(seen.counters.unmeasured)),
    # ---- batches and the model
    _counter("enricher.windows", "{window}", "Windows submitted to the model.",
             lambda seen: one(seen.counters.windows)),
    _counter("enricher.batches", "{batch}", "Batches submitted to the model.",
             lambda seen: one(seen.counters.batches)),
    _counter("enricher.tokens", "{token}",
             "Tokens that the device computed, split into tokens of texts and padding.",
             tokens, ("enricher.token.kind",)),
    _histogram("enricher.batch.fill", "1",
               "Tokens of a batch, padding included, divided by the token budget of a batch.",
               lambda seen: one(seen.counters.batch_fill)),
    _histogram("enricher.batch.wait", "s",
               "Time that a batch's oldest window waited for the batch to be submitted.",
               lambda seen: one(seen.counters.batch_wait_s)),
    _gauge("enricher.batch.budget", "{token}",
           "Most tokens that a batch may have now. It is lowered when the device runs out of memory, until a restart.",
           lambda seen: one(seen.snapshot().budget_tokens)),
    _counter("enricher.engine.busy.time", "s", "Time spent running the model, summed over the worker threads.",
             lambda seen: one(seen.snapshot().engine_busy_s)),
    _counter("enricher.engine.starved.time", "s",
             "Time that worker threads had no batch although there was a backlog.",
             lambda seen: one(seen.snapshot().engine_starved_s)),
    _counter("enricher.engine.out_of_memory", "{batch}",
             "Batches that did not fit into the device's memory and were run in parts.",
             lambda seen: one(seen.counters.out_of_memory)),
    _gauge("enricher.engine.concurrency", "{run}", "Runs of the model that may be in progress at once.",
           lambda seen: one(seen.snapshot().concurrency)),
    _gauge("enricher.model.info", "1",
           "Always 1; the attributes say which model runs, in which precision, on which device.",
           model_info, MODEL),
    # ---- queues
    _gauge("enricher.queue.windows", "{window}", "Windows waiting for a batch.",
           lambda seen: one(seen.snapshot().queued_windows)),
    _gauge("enricher.queue.tokens", "{token}", "Tokens of the windows waiting for a batch.",
           lambda seen: one(seen.snapshot().queued_tokens)),
    _gauge("enricher.in_flight.articles", "{article}", "Articles read and not yet committed.",
           lambda seen: one(seen.snapshot().in_flight_articles)),
    _gauge("enricher.in_flight.size", "By", "Memory held by keys, values and headers of the articles in flight.",
           lambda seen: one(seen.snapshot().in_flight_bytes)),
    _gauge("enricher.held_back.articles", "{article}",
           "Finished articles that wait for an earlier offset of their partition.",
           lambda seen: one(seen.snapshot().held_back_articles)),
    # ---- schemas, if articles name them
    _gauge("enricher.schemas.waiting.articles", "{article}",
           "Articles in flight that wait for their schema. They hold back later offsets of their partitions.",
           lambda seen: waiting_articles(seen.snapshot())),
    _gauge("enricher.schemas.waiting.partitions", "{partition}",
           "Partitions with such articles, which are not read until these are through.",
           lambda seen: waiting_partitions(seen.snapshot())),
    _counter("enricher.registry.requests", "{request}",
             "Requests for schemas by outcome. `unavailable` is asked again for ever, `unknown` for a while; `unusable` "
             "makes dead letters.",
             lambda seen: requests(seen.snapshot()), (OUTCOME,)),
    _gauge("enricher.registry.away", "s",
           "Time since nobody has answered about a schema that articles wait for; 0 while there is no such schema.",
           lambda seen: registry_away(seen.snapshot())),
    # ---- exactly once
    _counter("enricher.transactions", "{transaction}",
             "Transactions, committed or failed. A recovery follows each failed one.",
             lambda seen: by({"committed": seen.counters.transactions, "failed": seen.counters.recoveries}),
             (OUTCOME,)),
    _counter("enricher.transactions.repeated", "{transaction}",
             "Transactions that a rebalance met: aborted and made once more. They are not counted as failed.",
             lambda seen: one(seen.counters.transactions_repeated)),
    _counter("enricher.producers.recreated", "{producer}",
             "Producers replaced: in a recovery, or after a transaction that was suspiciously slow.",
             lambda seen: by({"slow": seen.counters.producers_renewed, "recovery": seen.counters.recoveries}),
             ("enricher.reason",)),
    _counter("enricher.recoveries", "{recovery}",
             "Recoveries begun: everything in flight is dropped and read again.",
             lambda seen: one(seen.counters.recoveries)),
    _histogram("enricher.recovery.duration", "s", "Duration of a recovery with all its attempts.",
               lambda seen: one(seen.counters.recovery_s)),
    _counter("enricher.isolations", "{partition}",
             "Partitions whose articles were processed one at a time, because several processes had died at the "
             "same offset.", lambda seen: one(seen.counters.isolations)),
    _counter("enricher.rebalances", "{rebalance}", "Rebalances in which partitions were assigned, revoked or lost.",
             lambda seen: by({kind: seen.counters.rebalances[kind] for kind in ("assigned", "revoked", "lost")}),
             ("enricher.rebalance.kind",)),
    # ---- the group and the broker
    _gauge("enricher.partitions", "{partition}", "Partitions of the input topic assigned to this worker.",
           lambda seen: one(seen.snapshot().partitions)),
    _gauge("enricher.partition.lag", "{record}",
           "Offsets between the committed one and the end. Transaction markers count, so it may stay above 0.",
           lambda seen: by_partition(seen.snapshot().lags), (DESTINATION, PARTITION)),
    _gauge("enricher.partition.unstable", "{record}",
           "Offsets after the last stable one. Consumers with read_committed get them only when the publisher's "
           "open transaction ends.",
           lambda seen: by_partition({each: it.offsets for each, it in seen.snapshot().unstable.items()}),
           (DESTINATION, PARTITION)),
    _gauge("enricher.partition.unstable.age", "s",
           "Time since the last stable offset moved, while there are offsets after it; 0 if there are none.",
           lambda seen: by_partition({each: it.age_s for each, it in seen.snapshot().unstable.items()}),
           (DESTINATION, PARTITION)),
    _gauge("enricher.topic.partitions", "{partition}",
           "Number of partitions of the input topic, the output topic and the dead-letter topic. All three should "
           "have the same number.", lambda seen: by(seen.snapshot().connection.topic_partitions), (DESTINATION,)),
    _gauge("enricher.kafka.brokers", "{broker}", "Brokers to which the consumer is connected.",
           lambda seen: one(seen.snapshot().connection.brokers)),
    # ---- the process
    _gauge(STATE, "1", "1 for the current state of the worker, 0 for the others.",
           lambda seen: states_of(seen.snapshot().state), (STATE,)),
    _gauge("enricher.loop.turn.age", "s",
           "Time since the loop began its current turn; 0 during a recovery, whose attempts have their own bounds.",
           lambda seen: one(seen.snapshot().turn_age_s)),
    *PROCESS_INSTRUMENTS,
    # ---- the GPU, if NVML is available
    _gauge("hw.gpu.utilization", "1", "Share of time in which a kernel ran on the GPU; none with MIG.",
           lambda seen: [each for gpu in seen.gpus() for each in one(gpu.utilization, gpu.name)], (GPU,)),
    _gauge("hw.gpu.memory.usage", "By", "Memory in use on the GPU, by all processes.",
           lambda seen: [(gpu.used_bytes, (gpu.name,)) for gpu in seen.gpus()], (GPU,)),
    _gauge("hw.gpu.memory.limit", "By", "Total memory of the GPU.",
           lambda seen: [(gpu.total_bytes, (gpu.name,)) for gpu in seen.gpus()], (GPU,)),
)  # fmt: skip
"""The instruments of a worker, in the order of the docs: first what consumers of the output notice, last the machine."""
