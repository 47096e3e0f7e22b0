"""Very long articles: few at once, piece by piece, and nothing of them is lost."""

from __future__ import annotations

import numpy as np
import pytest

from enricher.worker.loop import queues
from enricher.worker.loop.queues import LongArticles
from enricher.worker.records import Partition, RawRecord, Ticket, Tombstone, Window


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LONG_BYTES", 10)
    monkeypatch.setattr(queues, "IN_PROGRESS_BYTES", 100)


def ticket_of(value_bytes: int) -> Ticket:
    """Of a value of that size."""
    return Ticket(RawRecord(Partition("articles", 0), 0, None, b"x" * value_bytes), 0.0)


def windows(of: Ticket, count: int) -> list[Window]:
    """So many, cut at 0 s."""
    of.windows = of.windows_left = count
    return [Window(of, np.zeros(4, np.int32), n, n, n + 1, 1, 0.0) for n in range(count)]


def begun(articles: LongArticles, *tickets: Ticket) -> list[Ticket]:
    """Put these into the line and begin all that may; those that did."""
    for each in tickets:
        articles.wait(each)
    found = []
    while following := articles.next(lambda _: True):
        found.append(following)
        articles.begin(found[-1])
    return found


def test_so_many_bytes_are_in_progress_or_one_that_is_larger() -> None:
    """In the order of arrival: a small one does not overtake a large one for which there is no capacity."""
    articles, (a, b, c, d) = LongArticles(), [ticket_of(size) for size in (60, 40, 500, 20)]
    assert [a, b] == begun(articles, a, b, c, d)
    a.finish(Tombstone())
    articles.due(0.0, 1)
    assert [] == begun(articles)
    b.forgotten = True
    articles.due(0.0, 1)
    assert [c] == begun(articles)
    c.finish(Tombstone())
    articles.due(0.0, 1)
    assert [d] == begun(articles)


def test_windows_go_piece_by_piece_as_others_come_back() -> None:
    """Never more than asked for are with the scheduler, each goes once, in order, and its wait begins then."""
    articles, article = LongArticles(), ticket_of(50)
    (ticket,) = begun(articles, article)
    assert articles.due(1.0, 3) == []
    assert articles.hold(ticket, windows(ticket, 8))
    gone: list[Window] = []
    for now_s, back in [(2.0, 0), (3.0, 1), (4.0, 0), (5.0, 3), (6.0, 3)]:
        ticket.windows_left -= back
        due = articles.due(now_s, 3)
        assert [now_s] * len(due) == [window.arrived_s for window in due]
        gone += due
        assert ticket.windows_left - (8 - len(gone)) <= 3
    assert list(range(8)) == [window.start for window in gone]


def test_there_is_something_to_do_while_one_waits_or_windows_are_held() -> None:
    """The loop would take it for lost otherwise. Long is what has many bytes, before anything is decoded."""
    articles, (article, other) = LongArticles(), [ticket_of(size) for size in (50, 10)]
    assert [True, False] == [articles.is_long(each) for each in (article, other)]
    assert not articles.hold(other, windows(other, 3)), "windows of others go to the scheduler at once"
    assert not articles
    articles.wait(article)
    assert articles
    (ticket,) = begun(articles)
    assert not articles, "the tokenizer has it"
    articles.hold(ticket, windows(ticket, 2))
    assert articles
    articles.due(0.0, 2)
    assert not articles, "the scheduler has it"


def test_what_is_forgotten_is_let_go_of() -> None:
    """Waiting or under way, with its windows."""
    articles, (a, b, c) = LongArticles(), [ticket_of(90) for _ in range(3)]
    (ticket,) = begun(articles, a, b, c)
    articles.hold(ticket, windows(ticket, 5))
    a.forgotten = b.forgotten = True
    articles.drop_forgotten()
    assert articles.due(0.0, 5) == []
    assert [c] == begun(articles)
