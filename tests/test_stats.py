"""The counts: for machines, and what they count."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import plain_record

from enricher.worker.records import (
    Article,
    Batch,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    Entity,
    ModelCard,
    Outcome,
    Partition,
    RawRecord,
    TaskCard,
    TaskReport,
    Ticket,
    Tombstone,
    Window,
)
from enricher.worker.stats import Counters, Histogram


def ticket(offset: int, timestamp_s: float | None = None) -> Ticket:
    """An article that arrived at 1 s."""
    return Ticket(RawRecord(Partition("articles", 0), offset, b"k", b"v", (), timestamp_s), 1.0)


def numbers_of(histogram: Histogram) -> tuple[int, float]:
    """How many values, and their sum to the microsecond."""
    return histogram.count, round(histogram.sum, 6)


def test_counts_are_json_whatever_was_counted() -> None:
    """Counters are objects by their names; nothing private is among them; a copy, which does not count on."""
    counters = Counters()
    counters.dead_letters["decode:InvalidArticle"] += 2
    counters.rebalances["assigned"] += 1
    counters.tasks["ner"] = Counter(ran=2)
    counters.labels["ner", "ORG"] += 5
    counters.latency_s.add(0.2)
    told = counters.as_dict()
    counters.rebalances["lost"] += 1
    counters.latency_s.add(0.2)
    read = orjson.loads(orjson.dumps(told))
    assert ({"decode:InvalidArticle": 2}, {"assigned": 1}, 2) == (
        read["dead_letters"],
        read["rebalances"],
        read["published"],
    )
    assert ({"ner": {"ORG": 5}}, {"ran": 2}) == (read["labels"], read["tasks"]["ner"])
    assert 1 == sum(read["latency_s"]["counts"])
    assert not {"_read_up_to", "epoch_clock"} & set(read)


def test_what_is_read_again_is_counted_as_repeated() -> None:
    """Per partition, by offset."""
    counters = Counters()
    counters.count_read([ticket(4), ticket(5)], 1.0)
    counters.count_read([ticket(5), ticket(7)], 2.0)
    assert (4, 1) == (counters.read, counters.repeated)


def test_a_transaction_counts_its_articles_by_outcome() -> None:
    """With the time that each took here, and since it was published where that is known."""
    counters = Counters(epoch_clock=lambda: 1_000.0)
    tickets = [ticket(0, 990.0), ticket(1, 999.5), ticket(2)]
    tickets[0].finish(Tombstone())
    tickets[1].finish(DeadLetter("decode", "InvalidArticle", "no body"))
    entity = Entity(field="body", start=0, end=1, text="x", label="PER", score=0.9)
    tickets[2].finish(plain_record(Article("id", "", "x"), [entity] * 3, Coverage(1, 1, truncated=False)))
    counters.count_published(tickets, 3.0, 3.5)
    assert (1, 1, 1, 3, 3) == (
        counters.records,
        counters.tombstones,
        counters.dead_letters.total(),
        counters.entities,
        counters.published,
    )
    assert (2, 10.5) == numbers_of(counters.latency_s)
    assert (3, 7.5) == numbers_of(counters.process_s)
    assert (1, 0.5) == numbers_of(counters.transaction_s)


def test_what_was_written_instead_of_an_outcome_counts() -> None:
    """A record that is too large for its topic is a dead letter there, and here.

    A publisher's clock may be ahead: a sum that falls would look like a new process.
    """
    counters = Counters(epoch_clock=lambda: 1_000.0)
    large = ticket(0, 1_500.0)
    large.finish(plain_record(Article("id", "", "x"), [], Coverage(1, 1, truncated=False)))
    counters.count_published([large], 3.0, 3.5, {large: DeadLetter("publish", "OutputTooLarge", "6041 bytes")})
    assert (0, {"publish:OutputTooLarge": 1}) == (counters.records, counters.dead_letters)
    assert (1, 0.0) == numbers_of(counters.latency_s)


def test_a_batch_is_as_full_as_the_device_sees_it() -> None:
    """Padded tokens over the budget; its wait is that of its oldest window."""
    windows = [
        Window(ticket(0), np.zeros(length, np.int32), 0, 0, length, 0, at) for length, at in ((10, 1.0), (8, 1.4))
    ]
    counters = Counters()
    counters.count_batch(Batch(tuple(windows)), 20, 40, 1.5)
    assert (18, 20, 2) == (counters.real_tokens, counters.padded_tokens, counters.windows)
    assert ((1, 0.5), (1, 0.5)) == (numbers_of(counters.batch_fill), numbers_of(counters.batch_wait_s))


BOUNDS = (0.1, 1.0, 10.0)
VALUES = st.lists(st.floats(0, 100, allow_nan=False), max_size=50)


def counted(values: list[float]) -> Histogram:
    """A histogram of these."""
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.add(value)
    return histogram


@given(VALUES)
def test_buckets_are_open_below_and_closed_above(values: list[float]) -> None:
    """As OpenTelemetry and Prometheus have it, against a count by hand."""
    edges = [-np.inf, *BOUNDS, np.inf]
    expected = [sum(low < value <= high for value in values) for low, high in pairwise(edges)]
    assert expected == counted(values).counts
    assert sum(values) == pytest.approx(counted(values).sum)


@given(VALUES.filter(bool), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_of_the_value_that_it_stands_for(values: list[float], share: float) -> None:
    """Between the bounds around the value of that rank; above all bounds the last bound is all that is known."""
    rank = max(0, int(np.ceil(share * len(values))) - 1)
    exact = sorted(values)[rank]
    edges = [0.0, *BOUNDS, np.inf]
    upper = next(high for high in edges[1:] if exact <= high)
    lower = edges[edges.index(upper) - 1]
    quantile = counted(values).quantile(share)
    assert quantile is not None
    assert lower <= quantile <= min(upper, BOUNDS[-1])


ARTICLE, COVERAGE = Article("1", "", ""), Coverage(tokens=1, windows=1, truncated=False)
A, B, C = (TaskCard(name, "ner", ModelCard("model", "0", "fp32")) for name in "abc")


def published(
    counters: Counters, outcome: Outcome, article: Article | None = ARTICLE, *, unmeasured: bool = False
) -> None:
    """Count an article with this outcome."""
    ticket = Ticket(RawRecord(Partition("articles", 0), 0, b"k", b"v"), 0.0, article, unmeasured=unmeasured)
    ticket.finish(outcome)
    counters.count_published([ticket], 0.0, 1.0)


def test_outcomes_are_counted_for_each_task() -> None:
    """A dead letter of the model fails all tasks, and none if the article never got there."""
    counters = Counters()
    counters.name_tasks("abc")
    tasks = [TaskReport(A, COVERAGE), TaskReport(B, None), TaskReport(C, COVERAGE)]
    published(counters, EnrichedRecord(ARTICLE, [], COVERAGE, tasks=tasks))
    published(counters, DeadLetter("inference", "NotFinite", "no number"))
    published(counters, DeadLetter("tokenize", "InvalidArticle", "no text"))
    published(counters, DeadLetter("decode", "InvalidArticle", "no article"), article=None)
    published(counters, DeadLetter("inference", "KilledWorker", "kills"), article=None)
    expected = [{"ran": 1, "failed": 2}, {"skipped": 1, "failed": 2}, {"ran": 1, "failed": 2}]
    assert expected == [counters.tasks[name] for name in "abc"]


def test_articles_that_no_task_was_for_are_counted_by_reason() -> None:
    """One task is enough not to count; a blank language is none, and a dead letter has no record.

    Articles in languages in which no model was measured are counted with or without tasks.
    """
    counters = Counters()
    counters.name_tasks("ab")
    for language, ran in [("pt", None), ("pt", COVERAGE), (" ", None), (None, None), ("fr", None)]:
        article = replace(ARTICLE, language=language)
        reports = [TaskReport(A, ran), TaskReport(B, None)]
        record = EnrichedRecord(article, [], COVERAGE, tasks=reports)
        published(counters, record, article=article, unmeasured=language == "fr")
    published(counters, DeadLetter("decode", "InvalidJson", "no"))
    assert {"other_language": 2, "no_language": 2} == counters.without_task
    assert 1 == counters.unmeasured


def test_labels_are_bounded() -> None:
    """So many of each task, or outcome, have a name; later ones are the rest, and known ones count on."""
    counters = Counters()
    for number in range(100):
        record = plain_record(ARTICLE, [], COVERAGE, labels={("ner", f"L{number}"): 2, ("topic", "sport"): 1})
        published(counters, record)
    published(counters, plain_record(ARTICLE, [], COVERAGE, labels={("ner", "L0"): 1}))
    assert 64 + 1 + 1 == len(counters.labels)
    assert (3, 2 * 36, 100) == (
        counters.labels["ner", "L0"],
        counters.labels["ner", "other"],
        counters.labels["topic", "sport"],
    )
    counters.count_links({(f"L{number}", "matched"): 2 for number in range(100)})
    assert (64 + 1, 2, 2 * 36) == (
        len(counters.links),
        counters.links["matched", "L0"],
        counters.links["matched", "other"],
    )
