"""The leg `tasks`: what several tasks cost on one worker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from enricher.worker.build.loaded_tasks import Tasks, load_tasks
from enricher.worker.settings import Settings
from tools.bench.backlog import count_for, run_backlog
from tools.bench.bench import Bench
from tools.bench.legs.tasks.checkpoints import Sources, make_checkpoints
from tools.bench.legs.tasks.crews import run_checkout, run_workers
from tools.bench.legs.tasks.report import (
    BEFORE,
    FOUR,
    FOUR_WORKERS,
    NOW,
    OF_FOUR,
    ONE,
    ONE_WORKER,
    PLAIN,
    Results,
    outcome,
)
from tools.bench.load import Mix, articles
from tools.bench.outcome import Outcome
from tools.bench.repeating import Run
from tools.changed_settings import change

ABOUT = (
    "Backlogs, Kafka to Kafka, in fp32, which needs no gate report: entities alone, without and with tasks in the "
    "settings; four tasks (entities, two classifications, a mean embedding; all but the entities with random weights) "
    "on one encoder. Four tasks are also compared with four workers of one task each, which are processes on the "
    "same cores."
)
RUN_S, CREW_S, QUICK_S = 4.0, 3.0, 0.3
"""Target duration of a run of entities alone; of the same for the workers that are processes, one of which starts late."""
MIXES: tuple[Mix, ...] = ("news", "headlines")


def measure(bench: Bench) -> Outcome:
    """Run the leg: seven minutes for five repetitions."""
    with tempfile.TemporaryDirectory(prefix="bench-tasks-") as folder:
        bench.say("making checkpoints")
        sources = make_checkpoints(Path(folder))
        contenders = _contenders(bench, sources)
        settings, tasks = contenders[PLAIN]
        seconds = QUICK_S if bench.quick else RUN_S
        counts = {mix: count_for(bench, mix, seconds, settings=settings, tasks=tasks) for mix in MIXES}
        runs: dict[str, dict[str, list[Run]]] = {
            mix: bench.interleave(_backlogs(bench, mix, counts[mix], contenders), mix) for mix in MIXES
        }
        crews = bench.interleave(_crews(bench, sources, settings))
    return outcome(Results(runs, crews))


def _contenders(bench: Bench, sources: Sources) -> dict[str, tuple[Settings, Tasks]]:
    """The settings of each worker, with its tasks loaded."""
    plain = change(bench.settings, model={"precision": "fp32"})
    chosen = {
        PLAIN: plain,
        ONE: sources.settings(plain, "ner"),
        FOUR: sources.settings(plain, *OF_FOUR),
    }
    loaded = {}
    for name, settings in chosen.items():
        bench.say(f"loading: {name}")
        loaded[name] = settings, load_tasks(settings)
    return loaded


def _backlogs(
    bench: Bench, mix: Mix, count: int, contenders: Mapping[str, tuple[Settings, Tasks]]
) -> dict[str, Callable[[], Run]]:
    return {
        name: partial(run_backlog, bench, mix, count, settings=contenders[name][0], tasks=contenders[name][1])
        for name in contenders
    }


def _crews(bench: Bench, sources: Sources, plain: Settings) -> dict[str, Callable[[], Run]]:
    """Workers that are processes: four with one task each, one with four, and versions of the project."""
    rate = run_backlog(bench, "news", 24, settings=plain, tasks=load_tasks(plain)).rate
    values = articles("news", max(8, round(rate * (QUICK_S if bench.quick else CREW_S))))
    alone = [sources.settings(plain, name) for name in OF_FOUR]
    crews: dict[str, Callable[[], Run]] = {
        ONE_WORKER: partial(run_workers, bench, values, [sources.settings(plain, *OF_FOUR)]),
        FOUR_WORKERS: partial(run_workers, bench, values, alone),
    }
    if bench.before is None:
        return crews
    here = Path(__file__).resolve().parents[5]
    return crews | {
        BEFORE: partial(run_checkout, bench, values, bench.before),
        NOW: partial(run_checkout, bench, values, here),
    }
