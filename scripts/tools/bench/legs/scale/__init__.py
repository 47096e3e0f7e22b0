"""The leg `scale`: 1, 2 and 4 workers in one group, and the cost of a commit. The model is a stub.

The stub answers at once, which shows what the cores allow, or waits without computing, as for a GPU, which shows what the
group allows when cores are not the limit. All else is real. Every worker is a process; all run for the whole leg, and
the groups get their bursts in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from tools.bench.bench import Bench
from tools.bench.legs.scale.crew import Burst, Crew
from tools.bench.legs.scale.report import Scale, outcome
from tools.bench.load import articles
from tools.bench.machine import Load
from tools.bench.outcome import Outcome
from tools.bench.repeating import Run

ABOUT = (
    "Worker processes in one group, eight partitions, news articles. Only the model is a stub: it answers at once (then "
    "cores are the limit), or waits as for a GPU, so long that one worker keeps a fifth of a core busy (then they are "
    "not). Broker and workers share the machine's cores."
)
SIZES = (1, 2, 4)
WAITING_CORES = 0.2
"""Share of a core that one worker's own work may take while its device is busy: four of them fit on one core."""
OFTEN_MS = 20.0
"""Publishing this often, against the usual interval at the same article rate, shows the cost of a transaction."""
WARM_UP = 200
SECONDS, QUICK_S, IDLE_S = 5.0, 2.0, 3.0
MOST_REPETITIONS = 3
"""Twenty bursts of five seconds; more would say little more."""


def measure(bench: Bench) -> Outcome:
    """Run the leg: about three minutes, with `--quick` one."""
    seconds = QUICK_S if bench.quick else SECONDS
    with ExitStack() as closing:
        bench.say("starting workers")
        crews = {size: Crew(bench, closing, size) for size in SIZES}
        often = Crew(bench, closing, 1, publish_interval_ms=OFTEN_MS)
        everyone = [*crews.values(), often]
        for crew in everyone:
            crew.ready()
            bench.say(f"warming up {len(crew.workers)} workers")
            crew.burst(articles("news", WARM_UP))
        probe = crews[1].burst(articles("news", 4 * WARM_UP))
        count = round(probe.articles / probe.seconds * seconds)
        at_once = bench.interleave({str(n): _bursts(crew, count) for n, crew in crews.items()}, most=MOST_REPETITIONS)
        device_tokens_per_s = _device(probe)
        for crew in everyone:
            crew.command(tokens_per_s=device_tokens_per_s)
        idle = _idle(bench)
        count = round(WAITING_CORES * probe.articles / probe.worker_cpu_s * seconds)
        contenders = {str(n): _bursts(crew, n * count) for n, crew in crews.items()} | {"often": _bursts(often, count)}
        waiting = bench.interleave(contenders, most=MOST_REPETITIONS)
    usually_ms = bench.settings.worker.publish_interval_ms
    return outcome(Scale(at_once, waiting, idle, device_tokens_per_s, OFTEN_MS, usually_ms))


def _bursts(crew: Crew, count: int) -> Callable[[], Run]:
    values = articles("news", count)
    return lambda: crew.burst(values).run


def _device(probe: Burst) -> float:
    """Tokens per second of a device that keeps one worker busy for `WAITING_CORES` of a core, from the probe's cost."""
    articles_per_s = WAITING_CORES * probe.articles / probe.worker_cpu_s
    return articles_per_s * probe.padded_tokens / probe.articles


def _idle(bench: Bench) -> Load:
    """Load of the groups and the broker without articles: heartbeats and empty fetches."""
    bench.say("idle")
    meter = bench.meter()
    time.sleep(IDLE_S)
    return meter.read()
