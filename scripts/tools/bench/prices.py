"""Reads prices.toml and computes cost from rates and prices. Pure except for `read`."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("prices.toml")
_HOUR_S, _DAY_S = 3600, 86_400


class PricesError(Exception):
    """The file is incomplete or contradicts itself."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One kind of machine. Without `articles_per_s` it has no cost.

    `measured`: source of the rate. `example`: the price is invented. `measured_here`: use this run's rate.
    """

    name: str
    price_per_hour: float
    example: bool = False
    measured_here: bool = False
    articles_per_s: float | None = None
    measured: str = ""

    def __post_init__(self) -> None:
        if self.price_per_hour <= 0:
            raise PricesError(f"{self.name}: price_per_hour must be above 0")
        if self.measured_here and (self.articles_per_s is not None or self.measured):
            raise PricesError(f"{self.name}: measured_here takes this run's rate; remove articles_per_s and measured")
        if (self.articles_per_s is None) != (not self.measured):
            raise PricesError(f"{self.name}: articles_per_s and measured (its source) must be given together")
        if self.articles_per_s is not None and self.articles_per_s <= 0:
            raise PricesError(f"{self.name}: articles_per_s must be above 0")

    def with_rate(self, articles_per_s: float, measured: str) -> Instance:
        """This instance with this run's rate, if `measured_here` is set."""
        if not self.measured_here:
            return self
        return replace(self, measured_here=False, articles_per_s=articles_per_s, measured=measured)


@dataclass(frozen=True, slots=True)
class Prices:
    """The content of prices.toml."""

    currency: str
    articles_per_day: int
    peak_over_mean: float
    instances: tuple[Instance, ...]

    def instances_needed(self, articles_per_s: float) -> int:
        """How many instances keep up with the peak of the day."""
        return math.ceil(self.articles_per_day / _DAY_S * self.peak_over_mean / articles_per_s)


def articles_per_hour(articles_per_s: float) -> float:
    """Articles per hour of an instance that is never idle."""
    return articles_per_s * _HOUR_S


def price_per_million(price_per_hour: float, articles_per_s: float) -> float:
    return price_per_hour / articles_per_hour(articles_per_s) * 1e6


def read(path: Path = PATH) -> Prices:
    """Read the file. Raises PricesError with the row's name."""
    try:
        return _prices(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise PricesError(f"{path}: {error}") from error


def _prices(data: dict[str, Any]) -> Prices:
    rows = tuple(Instance(**row) for row in data.pop("instance"))
    prices = Prices(**data, instances=rows)
    if not rows or prices.articles_per_day <= 0 or prices.peak_over_mean < 1:
        raise PricesError("at least one [[instance]], articles_per_day above 0, peak_over_mean of 1 or more")
    return prices
