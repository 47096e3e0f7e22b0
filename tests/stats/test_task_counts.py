"""Counts by task and by label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
from support.plain_records import plain_record

from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    ModelCard,
    Outcome,
    Partition,
    RawRecord,
    TaskCard,
    TaskReport,
    Ticket,
    Window,
)
from enricher.worker.stats.counters import Counters

ARTICLE, COVERAGE = Article("1", "", ""), Coverage(tokens=1, windows=1, truncated=False)
A, B, C = (TaskCard(name, "ner", ModelCard("model", "0", "fp32")) for name in "abc")


def published(counters: Counters, outcome: Outcome, article: Article | None = ARTICLE) -> None:
    """Count an article with this outcome."""
    ticket = Ticket(RawRecord(Partition("articles", 0), 0, b"k", b"v"), 0.0, article)
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
    assert expected == [counters.tasks[name].outcomes for name in "abc"]


def test_articles_in_languages_that_were_not_measured_are_counted() -> None:
    """With or without tasks in the settings."""
    counters = Counters()
    for unmeasured in (True, False, True):
        ticket = Ticket(RawRecord(Partition("articles", 0), 0, b"k", b"v"), 0.0, ARTICLE, unmeasured=unmeasured)
        ticket.finish(EnrichedRecord(ARTICLE, [], COVERAGE, []))
        counters.count_published([ticket], 0.0, 1.0)
    assert 2 == counters.unmeasured


def test_articles_that_no_task_was_for_are_counted_by_reason() -> None:
    """One task is enough not to count; a blank language is none, and a dead letter has no record."""
    counters = Counters()
    counters.name_tasks("ab")
    for language, ran in [("pt", None), ("pt", COVERAGE), (" ", None), (None, None), ("fr", None)]:
        article = replace(ARTICLE, language=language)
        reports = [TaskReport(A, ran), TaskReport(B, None)]
        published(counters, EnrichedRecord(article, [], COVERAGE, tasks=reports), article=article)
    published(counters, DeadLetter("decode", "InvalidJson", "no"))
    assert {"other_language": 2, "no_language": 2} == counters.without_task


def test_windows_tokens_and_time_are_counted_for_each_task() -> None:
    """Each counts all of it. Memory that ran out is counted for the worker."""
    counters = Counters()
    counters.name_tasks("abc")
    ticket = Ticket(RawRecord(Partition("articles", 0), 0, b"k", b"v"), 0.0)
    batch = Batch(tuple(Window(ticket, np.zeros(length, np.int32), 0, 0, length, 0, 0.0) for length in (3, 5)))
    counters.count_batch(batch, 10, 20, 1.0)
    counters.count_completed(BatchResult(batch, [], busy_s=0.5), out_of_memory=True)
    counted = [(each.windows, each.real_tokens, each.busy_s) for each in map(counters.tasks.__getitem__, "abc")]
    assert [(2, 8, 0.5)] * 3 == counted
    assert (2, 8, 1) == (counters.windows, counters.real_tokens, counters.out_of_memory)


def test_labels_are_bounded() -> None:
    """So many of each task have a name; later ones are the rest, and known ones count on."""
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


def test_counts_of_tasks_are_json_too() -> None:
    """By their names; labels by task. Without tasks in the settings there are none."""
    counters = Counters()
    assert ({}, {}) == (counters.as_dict()["tasks"], counters.as_dict()["labels"])
    counters.name_tasks(["a"])
    published(counters, EnrichedRecord(ARTICLE, [], COVERAGE, tasks=[TaskReport(A, None)], labels={("a", "PER"): 2}))
    read = orjson.loads(orjson.dumps(counters.as_dict()))
    assert {"a": {"windows": 0, "real_tokens": 0, "busy_s": 0.0, "outcomes": {"skipped": 1}}} == read["tasks"]
    assert {"a": {"PER": 2}} == read["labels"]
