"""What the bench says about encoding records in each format."""

from __future__ import annotations

from enricher.worker.settings import Settings
from tools.bench.legs.around.formats import FORMATS, format_costs, format_table
from tools.chaos.stub import StubEngine, stub_model


def test_every_format_is_measured_with_the_same_records() -> None:
    """JSON with a schema is five bytes larger than plain JSON; the others are smaller."""
    costs = format_costs(Settings(), stub_model(StubEngine()), "headlines", repetitions=2)
    sizes = costs.record_bytes
    assert 5 == sizes["json-schema"] - sizes["json"]
    assert sizes["avro"] < sizes["json"]
    assert all(costs.us[name].low > 0 for name in FORMATS)
    assert list(FORMATS) == [row[0] for row in format_table([costs]).rows]
