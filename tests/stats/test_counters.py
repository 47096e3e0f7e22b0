"""The counts: for machines, and what they count."""

from __future__ import annotations

from collections import Counter

import numpy as np
import orjson
from support.plain_records import plain_record

from enricher.worker.records import (
    Article,
    Batch,
    Coverage,
    DeadLetter,
    Entity,
    Partition,
    RawRecord,
    Ticket,
    Tombstone,
    Window,
)
from enricher.worker.stats.counters import Counters, Histogram, TaskCounts


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
    counters.tasks["ner"] = TaskCounts(windows=3, outcomes=Counter(ran=2))
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
    assert ({"ner": {"ORG": 5}}, {"ran": 2}) == (read["labels"], read["tasks"]["ner"]["outcomes"])
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
    """A record that is too large for its topic is a dead letter there, and here."""
    counters = Counters()
    large = ticket(0)
    large.finish(plain_record(Article("id", "", "x"), [], Coverage(1, 1, truncated=False)))
    counters.count_published([large], 3.0, 3.5, {large: DeadLetter("publish", "OutputTooLarge", "6041 bytes")})
    assert (0, {"publish:OutputTooLarge": 1}) == (counters.records, counters.dead_letters)


def test_a_publisher_whose_clock_is_ahead_takes_nothing_from_the_sum() -> None:
    """A record of the future is there at once: a sum that falls would look like a new process."""
    counters = Counters(epoch_clock=lambda: 1_000.0)
    early = ticket(0, 1_500.0)
    early.finish(Tombstone())
    counters.count_published([early], 3.0, 3.5)
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
