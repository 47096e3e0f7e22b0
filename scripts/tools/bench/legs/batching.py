"""The leg `batching`: padding, waiting and cost of the scheduler against simpler orders, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from tools.bench.bench import Bench
from tools.bench.outcome import Claim, Outcome
from tools.bench.repeating import Spread, in_turns
from tools.bench.simulator import freshness, report
from tools.bench.simulator.cost import DEQUE, articles_of, contenders
from tools.bench.simulator.lengths import record_lengths
from tools.bench.simulator.report import CUT, LOADS, OTHER_CUT, TABLE_LOADS, Backlog, Load
from tools.bench.simulator.scenarios import (
    CPU,
    GPU,
    GPU_ONE,
    ORDERS,
    OURS,
    PATTERNS,
    Setting,
    Traffic,
    backlog,
    under_load,
)
from tools.bench.simulator.statistics import Statistics

ABOUT = (
    "The worker's own scheduler on a fake clock, with the real token lengths of the sample articles, against batches in "
    "order of arrival and against plain length buckets."
)
LOAD_MIXES = ("news", "headlines", "mixed")
PADDING_AIMS = {"news": 1.03, "mixed": 1.10}
COST_AIM_US = 2.0
COST_WINDOWS = 50_000
Mixes = Mapping[str, Sequence[int]]


def measure(bench: Bench) -> Outcome:
    """Simulate backlogs and loads, and time the scheduler itself."""
    bench.say("tokenising")
    mixes = record_lengths(bench.settings.model.source, 60 if bench.quick else 400)
    cpu, gpu, gpu_one = (_shorter(each) if bench.quick else each for each in (CPU, GPU, GPU_ONE))
    bench.say("simulating backlogs")
    backlogs = [
        Backlog(setting, cut, mix, order, backlog(setting, cut, tokens, order))
        for setting, cut, (mix, tokens), order in product((cpu, gpu), (CUT, OTHER_CUT), mixes.items(), ORDERS)
    ]
    bench.say("simulating loads")
    loads = [*_loads(cpu, mixes, backlogs), *_loads(gpu, mixes, backlogs), *_loads(gpu_one, mixes, backlogs)]
    bench.say("simulating early batches")
    fresh = list(freshness.cases(mixes, quick=bench.quick))
    bench.say("timing the scheduler")
    costs = {setting.name: _costs(setting, mixes, max(3, bench.repetitions)) for setting in (cpu, gpu)}
    return Outcome(
        _figures(backlogs, loads, costs) | {"freshness": freshness.figures(fresh)},
        [
            report.backlog_table(cpu, backlogs),
            report.load_table(loads),
            freshness.table(fresh),
            report.cost_table(costs),
        ],
        [
            report.padding_plot(cpu, backlogs),
            report.wait_plot(cpu, "headlines", loads),
            report.wait_plot(gpu, "news", loads),
            freshness.plot(fresh),
        ],
        [*_padding_claims(backlogs), *_wait_claims(loads), *freshness.claims(fresh), _cost_claim(costs)],
    )


def _shorter(setting: Setting) -> Setting:
    return replace(setting, simulated_s=setting.simulated_s / 20, backlog_tokens=setting.backlog_tokens // 10)


def _loads(setting: Setting, mixes: Mixes, backlogs: Sequence[Backlog]) -> Iterator[Load]:
    """Our scheduler under all patterns; the others, for comparison, only under the hardest steady one."""
    same_model = GPU.name if setting.name == GPU_ONE.name else setting.name
    for mix in LOAD_MIXES:
        [best] = [
            each.statistics.tokens_per_s
            for each in backlogs
            if (each.setting.name, each.cut, each.mix, each.order) == (same_model, CUT, mix, OURS)
        ]
        for order, pattern, load in product(ORDERS, PATTERNS, LOADS):
            if order != OURS and (pattern != "random" or setting.name == GPU_ONE.name):
                continue
            traffic = Traffic(mix, CUT, pattern, load)
            statistics = under_load(setting, traffic, mixes[mix], order, capacity_tokens_per_s=best)
            yield Load(setting, traffic, order, statistics)


def _costs(setting: Setting, mixes: Mixes, repetitions: int) -> dict[str, Spread]:
    """Microseconds per window; interleaved, so that only times of the same run are compared."""
    articles = articles_of(CUT, mixes["mixed"], COST_WINDOWS)
    timed = {name: partial(contender, articles) for name, contender in contenders(setting.rules).items()}
    times_us = in_turns(timed, repetitions, lambda _: None)
    return {name: Spread.of(values) for name, values in times_us.items()}


# ---- figures and claims


def _figures(
    backlogs: Sequence[Backlog], loads: Sequence[Load], costs: Mapping[str, Mapping[str, Spread]]
) -> dict[str, Any]:
    return {
        "backlog": {
            f"{each.setting.name} / {each.cut} / {each.mix} / {each.order}": _facts(each.statistics)
            for each in backlogs
        },
        "load": {each.name: _facts(each.statistics) for each in loads},
        "us_per_window": {
            name: {order: spread.median for order, spread in spreads.items()} for name, spreads in costs.items()
        },
    }


def _facts(statistics: Statistics) -> dict[str, float]:
    return {
        "padded_per_real": statistics.padded_per_real,
        "computed_per_real": statistics.computed_per_real,
        "fill": statistics.fill,
        "tokens_per_s": statistics.tokens_per_s,
        "p50_wait_s": statistics.wait_s(0.5),
        "p99_wait_s": statistics.wait_s(0.99),
        "p99_own_wait_s": statistics.own_wait_s(0.99),
        "most_wait_s": statistics.wait_s(1.0),
        "simulated_s": statistics.ended_s,
    }


def _padding_claims(backlogs: Sequence[Backlog]) -> Iterator[Claim]:
    for mix, aim in PADDING_AIMS.items():
        worst = max(
            (each for each in backlogs if (each.mix, each.order) == (mix, OURS)),
            key=lambda each: each.statistics.computed_per_real,
        )
        padded = worst.statistics.computed_per_real
        where = f"{mix} ({worst.setting.name}, {worst.cut})"
        text = f"Under backlog at most {padded:.3f} padded tokens per real one, {where}; aim {aim}."
        yield Claim(text, padded <= aim)


def _wait_claims(loads: Sequence[Load]) -> Iterator[Claim]:
    """The wait that the scheduler adds to that for earlier work. Bursts are excluded: a burst waits for itself."""
    for setting, load in product((CPU, GPU), TABLE_LOADS):
        cases = [
            each
            for each in loads
            if (each.setting.name, each.traffic.load, each.order) == (setting.name, load, OURS)
            and each.traffic.pattern != "bursts"
        ]
        worst = max(cases, key=lambda each: each.statistics.own_wait_s(0.99))
        wait_s = worst.statistics.own_wait_s(0.99)
        text = (
            f"{setting.name} at {load:.0%} of capacity: 99 % of windows wait at most {wait_s * 1e3:.0f} ms longer than the "
            f"work in front of them takes ({worst.traffic.mix}, {worst.traffic.pattern}); aim: max wait and one batch, "
            f"{setting.bound_s * 1e3:.0f} ms."
        )
        yield Claim(text, wait_s <= setting.bound_s)


def _cost_claim(costs: Mapping[str, Mapping[str, Spread]]) -> Claim:
    most_us = max(spreads[OURS].median for spreads in costs.values())
    ratio = max(spreads[OURS].median / spreads[DEQUE].median for spreads in costs.values())
    text = f"The scheduler costs {most_us:.2f} us per window, {ratio:.0f} times a bare deque; aim {COST_AIM_US:g} us."
    return Claim(text, most_us < COST_AIM_US)
