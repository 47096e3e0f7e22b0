"""The report of the leg `latency`: tables, plots and claims. Measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tools.bench.legs.latency.point import SLACK_MS, Measured
from tools.bench.load import Mix
from tools.bench.outcome import Claim, Outcome, Plot, Series, Table

_LOW = 0.1
"""The load at which the aim applies: above it articles also wait for one another."""
_COLUMNS = (
    "", "max wait, ms", "publish every, ms", "articles", "articles/s", "p50, ms", "p90, ms", "p99, ms",
    "p50 of the last third", "aim for p50, ms",
)  # fmt: skip
_LOAD_COLUMNS = (
    "",
    "one batch, ms",
    "transactions",
    "worker, cores",
    "broker, cores",
    "client, cores",
    "others, cores",
)


def outcome(measured: Sequence[Measured], capacity: Mapping[Mix, float]) -> Outcome:
    """The outcome of the leg."""
    defaults, swept = _split(measured)
    figures = {
        "capacity_articles_per_s": dict(capacity),
        "points": [each.as_dict() for each in measured],
    }
    return Outcome(
        figures, [_table(measured, capacity), _loads(measured)], _plots(defaults, swept), _claims(defaults, swept)
    )


def _split(measured: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Points with the default waits, and the others."""
    usual = _waits(measured[0])
    return [each for each in measured if _waits(each) == usual], [each for each in measured if _waits(each) != usual]


def _waits(measured: Measured) -> tuple[float, float]:
    return measured.point.max_wait_ms, measured.point.publish_interval_ms


# ---- table


def _table(measured: Sequence[Measured], capacity: Mapping[Mix, float]) -> Table:
    late_ms = max(each.publisher_late_p99_ms for each in measured)
    capacities = ", ".join(f"{rate:.1f} {mix} a second" for mix, rate in capacity.items())
    return Table(
        "From publish to visible",
        _COLUMNS,
        [_row(each) for each in measured],
        f"Capacity, beside publisher and reader: {capacities}. The aim applies at {_LOW:.0%}. The client is publisher and "
        f"reader; it sent at most {late_ms:.1f} ms late (p99 of a point), which counts as latency. p99 needs a "
        f"hundred articles.",
    )


def _row(measured: Measured) -> list[str]:
    point, p99_ms = measured.point, measured.p99_ms
    return [
        _name(measured),
        f"{point.max_wait_ms:g}",
        f"{point.publish_interval_ms:g}",
        str(len(measured.latencies_ms)),
        f"{measured.rate:.1f}",
        f"{measured.p50_ms:.0f}",
        f"{measured.p90_ms:.0f}",
        "-" if p99_ms is None else f"{p99_ms:.0f}",
        f"{measured.late_p50_ms:.0f}",
        f"{measured.bound_ms:.0f}" if point.load <= _LOW else "",
    ]


def _loads(measured: Sequence[Measured]) -> Table:
    rows = [
        [
            f"{_name(each)}, {each.point.max_wait_ms:g} and {each.point.publish_interval_ms:g} ms",
            f"{each.one_batch_ms:.1f}",
            str(each.transactions),
            f"{each.load.own_cores - each.client_cores:.2f}",
            f"{each.load.broker_cores:.2f}",
            f"{each.client_cores:.2f}",
            f"{each.load.others_cores:.2f}",
        ]
        for each in measured
    ]
    return Table("Load during each point", _LOAD_COLUMNS, rows, "The client is publisher and reader.")


def _name(measured: Measured) -> str:
    return f"{measured.point.mix} at {measured.point.load:.0%}"


# ---- plots


def _plots(defaults: Sequence[Measured], swept: Sequence[Measured]) -> list[Plot]:
    lowest = [each for each in [*defaults, *swept] if each.point.load <= _LOW and each.point.mix == "headlines"]
    wait_ms, interval_ms = _waits(defaults[0])
    by_interval = [each for each in lowest if each.point.max_wait_ms == wait_ms]
    by_wait = [each for each in lowest if each.point.publish_interval_ms == interval_ms]
    return [
        Plot(
            "latency-load", "From publish to visible, by load", "lines", "load, % of capacity", "ms",
            _by_load(defaults),
        ),
        Plot(
            "latency-publish-interval", f"Headlines at {_LOW:.0%} of capacity, by publish interval", "lines",
            "publish interval, ms", "from publish to visible, ms", _by(by_interval, _interval_ms),
        ),
        Plot(
            "latency-max-wait", f"Headlines at {_LOW:.0%} of capacity, by max wait", "lines",
            "max wait, ms", "from publish to visible, ms", _by(by_wait, _wait_ms),
        ),
    ]  # fmt: skip


def _by_load(defaults: Sequence[Measured]) -> list[Series]:
    mixes = list(dict.fromkeys(each.point.mix for each in defaults))
    return [
        series
        for mix in mixes
        for series in _percentiles(
            [each for each in defaults if each.point.mix == mix], lambda each: 100 * each.point.load, f"{mix}, "
        )
    ]


def _by(measured: Sequence[Measured], x: Callable[[Measured], float]) -> list[Series]:
    ordered = sorted(measured, key=x)
    aim = Series("aim for p50", [x(each) for each in ordered], [each.bound_ms for each in ordered])
    return [*_percentiles(ordered, x, ""), aim]


def _percentiles(measured: Sequence[Measured], x: Callable[[Measured], float], prefix: str) -> list[Series]:
    """p50, p90, and p99 of the points that have one."""
    enough = [(x(each), each.p99_ms) for each in measured if each.p99_ms is not None]
    places = [x(each) for each in measured]
    series = [
        Series(f"{prefix}p50", places, [each.p50_ms for each in measured]),
        Series(f"{prefix}p90", places, [each.p90_ms for each in measured]),
    ]
    return [*series, Series(f"{prefix}p99", [at for at, _ in enough], [ms for _, ms in enough])] if enough else series


def _interval_ms(measured: Measured) -> float:
    return measured.point.publish_interval_ms


def _wait_ms(measured: Measured) -> float:
    return measured.point.max_wait_ms


# ---- claims


def _claims(defaults: Sequence[Measured], swept: Sequence[Measured]) -> list[Claim]:
    usual = [_claim(each) for each in defaults if each.point.load <= _LOW]
    return [*usual, _claim_of_all(swept)] if swept else usual


def _claim(measured: Measured) -> Claim:
    point = measured.point
    return Claim(
        f"{point.mix} at {point.load:.0%} of capacity: p50 {measured.p50_ms:.0f} ms from publish to visible, aim at most "
        f"{measured.bound_ms:.0f} ms (max wait {point.max_wait_ms:g} + one batch {measured.one_batch_ms:.0f} + publish "
        f"interval {point.publish_interval_ms:g} + {SLACK_MS:g})",
        held=measured.p50_ms <= measured.bound_ms,
    )


def _claim_of_all(swept: Sequence[Measured]) -> Claim:
    kept = sum(each.p50_ms <= each.bound_ms for each in swept)
    closest = max(swept, key=lambda each: each.p50_ms / each.bound_ms)
    point = closest.point
    return Claim(
        f"the same with other waits: {kept} of {len(swept)} settings within the aim; the closest, max wait "
        f"{point.max_wait_ms:g} ms and publishing every {point.publish_interval_ms:g} ms: {closest.p50_ms:.0f} of "
        f"{closest.bound_ms:.0f} ms",
        held=kept == len(swept),
    )
