"""Prices: only what is measured becomes money."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bench.legs.cost import _row, _table
from tools.bench.prices import Instance, Prices, PricesError, articles_per_hour, price_per_million, read
from tools.bench.repeating import Spread


def _written(folder: Path, *rows: str, head: str = "") -> Path:
    path = folder / "prices.toml"
    usual = head or 'currency = "EUR"\narticles_per_day = 8_640_000\npeak_over_mean = 1.0\n'
    path.write_text(usual + "".join(f"[[instance]]\n{row}\n" for row in rows), encoding="utf-8")
    return path


def test_price_of_a_million_is_the_hours_price_over_the_hours_articles() -> None:
    """100 articles a second are 360,000 an hour; at 0.36 an hour a million cost 1."""
    assert 360_000 == articles_per_hour(100)
    assert 1.0 == pytest.approx(price_per_million(0.36, 100))


def test_instances_are_whole_and_enough_for_the_peak() -> None:
    """8.64 million a day are 100 a second in the mean."""
    assert 1 == Prices("EUR", 8_640_000, 1.0, ()).instances_needed(100)
    assert 2 == Prices("EUR", 8_640_000, 1.0, ()).instances_needed(99)
    assert 3 == Prices("EUR", 8_640_000, 2.5, ()).instances_needed(100)


def test_row_without_a_measured_rate_has_no_cost() -> None:
    """The table says that the rate is not measured."""
    prices = Prices("EUR", 8_640_000, 1.0, ())
    assert ["big", "2.00", "not measured", "", "", "", ""] == _row(prices, Instance("big", 2.0))


def test_this_runs_rate_goes_only_to_the_row_that_asks_for_it() -> None:
    """Rows with their own rate keep it, and rows without any stay without."""
    assert 50.0 == Instance("here", 1.0, measured_here=True).with_rate(50.0, "this run").articles_per_s
    assert Instance("there", 1.0).with_rate(50.0, "this run").articles_per_s is None


def test_example_prices_are_marked_wherever_they_are_shown() -> None:
    """The price, the cost and the note below the table are all marked."""
    prices = Prices("EUR", 8_640_000, 1.0, ())
    example = Instance("here", 0.36, example=True, articles_per_s=100.0, measured="this run")
    assert ["0.36 (example)", "1.00 (example)"] == [_row(prices, example)[1], _row(prices, example)[4]]
    assert "invented" in _table(prices, [example], Spread(100.0, 100.0, 100.0)).note


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('name = "x"\nprice_per_hour = 1.0\narticles_per_s = 5.0', "must be given together"),
        ('name = "x"\nprice_per_hour = 1.0\nmeasured = "somewhere"', "must be given together"),
        ('name = "x"\nprice_per_hour = 1.0\nmeasured_here = true\narticles_per_s = 5.0\nmeasured = "y"', "this run's"),
        ('name = "x"\nprice_per_hour = 0', "above 0"),
        ('name = "x"\nprice_per_hour = 1.0\narticles_per_s = 0.0\nmeasured = "y"', "above 0"),
        ('name = "x"\nprice_per_hour = 1.0\nprice_per_day = 24.0', "price_per_day"),
        ('name = "x"', "price_per_hour"),
    ],
)
def test_file_that_says_too_little_or_too_much_is_refused(tmp_path: Path, row: str, complaint: str) -> None:
    """The message names the reason, such as a rate without a source."""
    with pytest.raises(PricesError, match=complaint):
        read(_written(tmp_path, row))


def test_day_without_articles_is_refused(tmp_path: Path) -> None:
    """A peak below the mean is refused too."""
    row = 'name = "x"\nprice_per_hour = 1.0'
    with pytest.raises(PricesError, match="peak_over_mean"):
        read(_written(tmp_path, row, head='currency = "EUR"\narticles_per_day = 5\npeak_over_mean = 0.5\n'))


def test_the_file_that_ships_has_one_measured_row_and_only_example_prices() -> None:
    """The shipped file claims no real price and assumes no rate."""
    instances = read().instances
    assert all(instance.example for instance in instances)
    assert [True] == [instance.measured_here for instance in instances if instance.measured_here]
    assert all(instance.articles_per_s is None for instance in instances)
