"""The leg `latency`: time from publish to visible at 10, 50 and 90 % of capacity, what it costs, and where it goes.

Capacity is measured first, as what becomes visible per second when more arrives than the worker can do, with the same
publisher and reader on the same cores. Arrivals are Poisson, fixed beforehand, and the same for all that are compared.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from tools.bench.backlog import count_for, run_backlog
from tools.bench.bench import Bench
from tools.bench.legs.latency.measured import NAIVE, Measured, Point, Repeated
from tools.bench.legs.latency.point import Traffic, measure_naive, measure_worker
from tools.bench.legs.latency.report import Results, outcome
from tools.bench.load import Mix
from tools.bench.outcome import Outcome
from tools.bench.peers.processes import PeerProcess
from tools.bench.policy import Policy
from tools.bench.repeating import Result, Run, quiet

ABOUT = (
    "From publish to visible for a read_committed consumer, with open-loop Poisson arrivals: latency counts from when an "
    "article was due, so that a slow worker cannot hide the wait of later ones. Capacity is what becomes visible per "
    "second when 1.5 times the worker's backlog rate arrives. Broker, publisher and reader share its cores. The naive "
    "loop has no model: it polls up to 64 records or 0.1 s, and writes what came in one transaction."
)
LOADS = (0.1, 0.5, 0.9)
TRACED_LOAD = LOADS[0]
NAIVE_LOADS = LOADS[:2]
OVERLOAD = 1.5
"""Share of the backlog rate: certainly more than the worker can do beside publisher and reader."""
CAPACITY_S, BACKLOG_S, QUICK_S = 6.0, 8.0, 3.0
QUICK_ARTICLES = 10
SECONDS: dict[Mix, float] = {"headlines": 10.0, "news": 15.0}
"""Duration of one point. Fewer news articles arrive per second, so they get more time."""
_AROUND_S = 5.0
"""About what a point takes besides: topics, joining the group, leaving it."""

Step = tuple[str, float, Callable[[], None]]
"""The name of what it measures, about how many seconds it takes, and the function."""


def measure(bench: Bench) -> Outcome:
    """Run the leg, and say how long it takes: five repetitions about 20 minutes, with `--against` 35."""
    with ExitStack() as closing:
        capacity = {mix: _capacity(bench, mix) for mix in SECONDS}
        naive = closing.enter_context(PeerProcess("tools.bench.naive_worker"))
        leg = _Leg(bench, capacity, naive)
        _run_all(bench, [step for number in range(bench.repetitions) for step in leg.repetition(number)])
    return outcome(leg.results())


def _capacity(bench: Bench, mix: Mix) -> float:
    bench.say(f"capacity, {mix}")
    seconds = QUICK_S if bench.quick else CAPACITY_S
    backlog_per_s = run_backlog(bench, mix, count_for(bench, mix, seconds)).rate
    return measure_worker(
        bench, Traffic.at(mix, OVERLOAD * backlog_per_s, seconds, seed=len(mix)), Policy()
    ).visible_per_s


def _run_all(bench: Bench, steps: list[Step]) -> None:
    """Run the steps, and before each say which it is and how long the rest takes, going by the ones before."""
    left_s, pace, began_s, planned_s = sum(seconds for _, seconds, _ in steps), 1.0, time.monotonic(), 0.0
    for number, (name, seconds, step) in enumerate(steps, 1):
        bench.say(f"{number} of {len(steps)}, about {left_s * pace / 60:.0f} min left: {name}")
        step()
        left_s, planned_s = left_s - seconds, planned_s + seconds
        pace = (time.monotonic() - began_s) / planned_s
    bench.say(f"took {(time.monotonic() - began_s) / 60:.1f} min")


@dataclass
class _Leg:
    """Collects the repetitions of every point."""

    bench: Bench
    capacity: dict[Mix, float]
    naive: PeerProcess
    points: defaultdict[Point, list[Measured]] = field(default_factory=lambda: defaultdict(list))
    traced: defaultdict[Point, list[Measured]] = field(default_factory=lambda: defaultdict(list))
    backlogs: defaultdict[tuple[Mix, str], list[Run]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        against = self.bench.against
        self.policies = [Policy(), *([against] if against else [])]
        self.backlog_counts = (
            {mix: count_for(self.bench, mix, QUICK_S if self.bench.quick else BACKLOG_S) for mix in SECONDS}
            if against
            else {}
        )

    def results(self) -> Results:
        points, traced = ([Repeated(*each) for each in runs.items()] for runs in (self.points, self.traced))
        return Results(self.capacity, points, traced, dict(self.backlogs), self.bench.against)

    def repetition(self, number: int) -> Iterator[Step]:
        """One of each. What is compared runs one after the other, in turns the one and the other first."""
        turn = slice(None, None, -1 if number % 2 else 1)
        for mix in SECONDS:
            for load in LOADS:
                traffic = self._traffic(mix, load, 10 * number)
                contenders = [
                    (policy.name, partial(measure_worker, self.bench, traffic, policy)) for policy in self.policies
                ]
                if load in NAIVE_LOADS:
                    contenders.append((NAIVE, partial(measure_naive, self.bench, traffic, self.naive)))
                for who, contender in contenders[turn]:
                    yield self._step(Point(mix, load, who), traffic.seconds, contender, self.points)
            traffic = self._traffic(mix, TRACED_LOAD, 10 * number + 1)
            for policy in self.policies[turn]:
                contender = partial(measure_worker, self.bench, traffic, policy, traced=True)
                yield self._step(
                    Point(mix, TRACED_LOAD, policy.name), traffic.seconds, contender, self.traced, ", by stage"
                )
            for policy in self.policies[turn] if self.backlog_counts else ():
                yield f"{mix} as a backlog, {policy.name}", BACKLOG_S + _AROUND_S, partial(self._backlog, mix, policy)

    def _traffic(self, mix: Mix, load: float, seed: int) -> Traffic:
        rate_per_s = load * self.capacity[mix]
        seconds = min(SECONDS[mix], max(QUICK_S, QUICK_ARTICLES / rate_per_s)) if self.bench.quick else SECONDS[mix]
        return Traffic.at(mix, rate_per_s, seconds, seed=seed + round(10 * load))

    def _step(
        self,
        point: Point,
        seconds: float,
        contender: Callable[[], Measured],
        into: defaultdict[Point, list[Measured]],
        how: str = "",
    ) -> Step:
        def step() -> None:
            into[point].append(self._quiet(contender))

        return f"{point}{how}", seconds + _AROUND_S, step

    def _backlog(self, mix: Mix, policy: Policy) -> None:
        contender = partial(run_backlog, self.bench, mix, self.backlog_counts[mix], policy.changes)
        self.backlogs[mix, policy.name].append(self._quiet(contender))

    def _quiet(self, contender: Callable[[], Result]) -> Result:
        return quiet(contender, self.bench.repetitions, self.bench.say)
