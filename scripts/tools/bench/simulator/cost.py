"""Measures the cost of the scheduler: microseconds per window for add and next_batch together, under backlog."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from enricher.worker.records import Window
from enricher.worker.rules.batch_rules import BatchRules
from enricher.workshop.simulator import Scheduler, windows_of
from tools.bench.simulator.lengths import Cut
from tools.bench.simulator.scenarios import BACKLOG_BATCHES, ORDERS

DEQUE = "a deque"
Articles = Sequence[Sequence[Window]]


def articles_of(cut: Cut, articles_tokens: Sequence[int], windows: int) -> list[list[Window]]:
    """At least this many windows, built beforehand, grouped by article."""
    articles: list[list[Window]] = []
    made = 0
    while made < windows:
        lengths = cut.lengths(articles_tokens[len(articles) % len(articles_tokens)])
        articles.append(windows_of(lengths, 0.0))
        made += len(lengths)
    return articles


def contenders(rules: BatchRules) -> dict[str, Callable[[Articles], float]]:
    """Functions that pass all articles through one order; each returns microseconds per window."""

    def timed(order: str) -> Callable[[Articles], float]:
        return lambda articles: _scheduler_us(ORDERS[order](rules), articles)

    return {DEQUE: _deque_us} | {order: timed(order) for order in ORDERS}


def _scheduler_us(scheduler: Scheduler, articles: Articles) -> float:
    most, coming, given = BACKLOG_BATCHES * scheduler.max_batch_tokens, iter(articles), 0
    article: Any = next(coming, None)
    began_s = time.perf_counter()
    while True:
        while article is not None and scheduler.queued_tokens < most:
            scheduler.add(article)
            article = next(coming, None)
        batch = scheduler.next_batch(1.0, idle_threads=0, load=1.0)
        if batch is None:
            break
        given += len(batch.windows)
    seconds = time.perf_counter() - began_s
    assert given == sum(map(len, articles)), "every window is given once"
    return seconds / given * 1e6


def _deque_us(articles: Articles) -> float:
    """Baseline: a deque, without any decision."""
    queue: deque[Window] = deque()
    began_s = time.perf_counter()
    for article in articles:
        for window in article:
            queue.append(window)
    while queue:
        queue.popleft()
    return (time.perf_counter() - began_s) / sum(map(len, articles)) * 1e6
