"""The leg `cost`: what a million articles cost, from the rate measured here and the prices in prices.toml.

Only a measured rate has a cost: this run's, or one that the user gives with its source.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tools.bench.backlog import count_for, run_backlog
from tools.bench.bench import Bench
from tools.bench.machine import processor
from tools.bench.outcome import Outcome, Table
from tools.bench.prices import Instance, Prices, articles_per_hour, price_per_million, read
from tools.bench.repeating import Spread, rates

ABOUT = (
    "A backlog of news articles, Kafka to Kafka, the broker on the same machine; prices are from "
    "scripts/tools/bench/prices.toml, which you edit. Rows without a measured rate have no cost."
)
SECONDS, QUICK_S = 8.0, 3.0
MOST_REPETITIONS = 3
_UNKNOWN = "not measured"


def measure(bench: Bench) -> Outcome:
    """Run the leg: half a minute."""
    prices = read()
    rate = _rate(bench)
    source = f"this run, {datetime.now(UTC):%Y-%m-%d}: {processor()}, {bench.model.card.precision}"
    instances = [instance.with_rate(rate.median, source) for instance in prices.instances]
    figures = {
        "articles_per_s": {"median": rate.median, "lowest": rate.low, "highest": rate.high},
        "currency": prices.currency,
        "articles_per_day": prices.articles_per_day,
        "peak_over_mean": prices.peak_over_mean,
        "instances": [_figures(prices, instance) for instance in instances],
    }
    return Outcome(figures, [_table(prices, instances, rate)])


def _rate(bench: Bench) -> Spread:
    bench.say("estimating the number of articles")
    count = count_for(bench, "news", QUICK_S if bench.quick else SECONDS)
    runs = bench.interleave({"news": lambda: run_backlog(bench, "news", count)}, most=MOST_REPETITIONS)
    return rates(runs["news"])


def _figures(prices: Prices, instance: Instance) -> dict[str, Any]:
    known = {
        "name": instance.name,
        "price_per_hour": instance.price_per_hour,
        "price_is_an_example": instance.example,
        "articles_per_s": instance.articles_per_s,
        "measured": instance.measured or None,
    }
    if instance.articles_per_s is None:
        return known
    return known | {
        "articles_per_hour": articles_per_hour(instance.articles_per_s),
        "price_per_million_articles": price_per_million(instance.price_per_hour, instance.articles_per_s),
        "instances_for_a_day": prices.instances_needed(instance.articles_per_s),
    }


def _table(prices: Prices, instances: list[Instance], rate: Spread) -> Table:
    columns = (
        "instance", f"{prices.currency} an hour", "articles/s", "articles an hour", f"{prices.currency} a million articles",
        f"instances for {prices.articles_per_day:,} a day", "rate from",
    )  # fmt: skip
    examples = any(instance.example for instance in instances)
    warning = "Prices marked 'example' are invented: edit scripts/tools/bench/prices.toml. " if examples else ""
    peak = f"sized for {prices.peak_over_mean:g} times the day's mean rate"
    return Table(
        "What a million articles cost",
        columns,
        [_row(prices, instance) for instance in instances],
        f"{warning}Measured here: {rate} articles a second. Instances are {peak}.",
    )


def _row(prices: Prices, instance: Instance) -> list[str]:
    price = f"{instance.price_per_hour:.2f}{' (example)' if instance.example else ''}"
    rate = instance.articles_per_s
    if rate is None:
        return [instance.name, price, _UNKNOWN, "", "", "", ""]
    cost = f"{price_per_million(instance.price_per_hour, rate):.2f}{' (example)' if instance.example else ''}"
    return [
        instance.name,
        price,
        f"{rate:.1f}",
        f"{articles_per_hour(rate):,.0f}",
        cost,
        str(prices.instances_needed(rate)),
        instance.measured,
    ]
