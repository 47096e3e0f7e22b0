"""Reading articles that are written in several ways: all ways say the same, and are compared with the usual one."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from enricher.worker.records import Partition, RawRecord
from tools.bench.legs.around.reading import MAPPED, UNMAPPED, Reading, Way, table, ways_to_write
from tools.bench.load import articles
from tools.bench.machine import Load
from tools.bench.repeating import QUIET_CORES, Run


@pytest.mark.parametrize("name", ways_to_write())
def test_every_way_to_write_an_article_is_read_as_the_same_article(name: str) -> None:
    """Otherwise costs of different work would be compared."""
    ways = ways_to_write()
    for value in articles("headlines", 20):
        document = orjson.loads(value)
        read = [
            way.reader.read(RawRecord(Partition("a", 0), 0, None, way.write(document)))
            for way in (ways[UNMAPPED], ways[name])
        ]
        assert read[0] == read[1]


def reading(rate: float, others_cores: float = 0.0) -> Reading:
    """JSON at 1,000 articles a second, and mapped JSON at `rate`."""
    load = Load(1.0, 1.0, 0.0, others_cores)
    ways = ways_to_write()
    runs = {UNMAPPED: [Run(1_000.0, load)], MAPPED: [Run(rate, load)]}
    return Reading("news", {name: ways[name] for name in runs}, runs)


def test_the_aim_holds_for_the_ratio_of_costs() -> None:
    """Times, not rates; and not while other processes disturb."""
    for rate, others_cores, held in ((910.0, 0.0, True), (900.0, 0.0, False), (1_000.0, 2 * QUIET_CORES, False)):
        (claim,) = reading(rate, others_cores).claims()
        assert (held, True) == (claim.held, "(aim 1.1)" in claim.text)
    assert ["1.25e+03 (1.25e+03 to 1.25e+03)", "1.25 (1.25 to 1.25)"] == list(table([reading(800.0)]).rows[1][1:])


def test_a_way_without_an_aim_is_shown_and_claims_nothing() -> None:
    """Such as the usual one, which all others are compared with."""
    found = reading(500.0)
    without = replace(found, ways={name: Way(way.write, way.reader) for name, way in found.ways.items()})
    assert [] == without.claims()
    assert 2 == len(table([without]).rows)
