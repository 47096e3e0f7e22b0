"""The leg `latency`: time from publish to visible at 10, 50 and 90 % of capacity, and the effect of the two waits.

Capacity is measured first, as what becomes visible per second when more arrives than the worker can do, with the same
publisher and reader on the same cores. Arrivals are Poisson, fixed beforehand.
"""

from __future__ import annotations

from tools.bench.backlog import count_for, run_backlog
from tools.bench.bench import Bench
from tools.bench.legs.latency.point import Measured, Point
from tools.bench.legs.latency.point import measure as measure_point
from tools.bench.legs.latency.report import outcome
from tools.bench.load import Mix
from tools.bench.outcome import Outcome

ABOUT = (
    "From publish to visible for a read_committed consumer, with open-loop Poisson arrivals: latency counts from when an "
    "article was due, so that a slow worker cannot hide the wait of later ones. Capacity is what becomes visible per "
    "second when 1.5 times the worker's backlog rate arrives. Broker, publisher and reader share its cores."
)
LOADS = (0.1, 0.5, 0.9)
PUBLISH_INTERVALS_MS = (20.0, 50.0, 100.0, 500.0, 1000.0)
MAX_WAITS_MS = (0.0, 10.0, 200.0)
OVERLOAD = 1.5
"""Share of the backlog rate: certainly more than the worker can do beside publisher and reader."""
CAPACITY_S, QUICK_S = 6.0, 3.0
SECONDS: dict[Mix, float] = {"headlines": 10.0, "news": 15.0}
"""Duration of one point. Fewer news articles arrive per second, so they get more time."""


def measure(bench: Bench) -> Outcome:
    """Run the leg: about four minutes, with `--quick` half a minute."""
    capacity = {mix: _capacity(bench, mix) for mix in SECONDS}
    measured = [_point(bench, point, capacity[point.mix], seed) for seed, point in enumerate(_points(bench))]
    return outcome(measured, capacity)


def _points(bench: Bench) -> list[Point]:
    """The loads with the settings as they are, then each setting varied at the lowest load."""
    wait_ms, interval_ms = bench.settings.batching.max_wait_ms, bench.settings.worker.publish_interval_ms
    loads = [Point(mix, load, wait_ms, interval_ms) for mix in SECONDS for load in LOADS]
    intervals = [Point("headlines", LOADS[0], wait_ms, each) for each in PUBLISH_INTERVALS_MS if each != interval_ms]
    waits = [Point("headlines", LOADS[0], each, interval_ms) for each in MAX_WAITS_MS if each != wait_ms]
    return [*loads[:2], intervals[0], waits[0]] if bench.quick else [*loads, *intervals, *waits]


def _capacity(bench: Bench, mix: Mix) -> float:
    bench.say(f"capacity, {mix}")
    seconds = QUICK_S if bench.quick else CAPACITY_S
    backlog_per_s = run_backlog(bench, mix, count_for(bench, mix, seconds)).rate
    wait_ms, interval_ms = bench.settings.batching.max_wait_ms, bench.settings.worker.publish_interval_ms
    flood = Point(mix, OVERLOAD, wait_ms, interval_ms)
    return measure_point(bench, flood, backlog_per_s, seconds, seed=len(mix)).visible_per_s


def _point(bench: Bench, point: Point, capacity_per_s: float, seed: int) -> Measured:
    bench.say(f"{point.mix} at {point.load:.0%}, waits {point.max_wait_ms:g} and {point.publish_interval_ms:g} ms")
    return measure_point(bench, point, capacity_per_s, QUICK_S if bench.quick else SECONDS[point.mix], seed=seed)
