"""The leg `search_index` without a broker: what it makes of its runs, and the records that it publishes."""

from __future__ import annotations

import orjson

from tools.bench.legs.search_index import IndexRun, outcome, record_of
from tools.bench.load import articles


def test_rate_and_cost_are_compared_with_the_plain_loop() -> None:
    """By their medians."""
    ours = [IndexRun(1_000, seconds, 0.1, 2.0) for seconds in (1.0, 2.0, 4.0)]
    found = outcome({"index run": ours, "streaming_bulk": [IndexRun(1_000, 4.0, 0.4, 2.0)]}, 1_000, 4_000.0)
    assert 2.0 == found.figures["rate_over_plain"]
    assert 0.25 == found.figures["cost_over_plain"]
    assert 2_000.0 == found.figures["index run"]["opensearch_us"]
    assert [4, 4] == [len(row) for row in found.tables[0].rows]


def test_records_have_many_entities() -> None:
    """As those of news have, with the labels of the shipped model."""
    record = record_of(orjson.loads(articles("news", 1)[0]), 7)
    assert 30 <= len(record["entities"]) <= 40
    assert {"PER", "ORG", "LOC"} == {entity["label"] for entity in record["entities"]}
