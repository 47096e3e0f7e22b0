"""Workers as processes: several that start together, each with its own tasks and topics, and one of any checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson

from enricher.worker.settings import Settings
from tools.bench.bench import Bench
from tools.bench.child import Child
from tools.bench.repeating import Run
from tools.topics import Topics

_MODULE = "tools.bench.task_worker"
_CHECKOUT_S = 300.0


def run_workers(bench: Bench, values: Sequence[bytes], crew: Sequence[Settings]) -> Run:
    """A worker for each settings, all on the same articles at the same time.

    The rate is of articles with all tasks done, from the first read of any worker to the last commit of any. They load
    their models one after the other, and join their groups together.
    """
    with ExitStack() as stack:
        workers = []
        for settings in crew:
            topics = stack.enter_context(bench.topics(values))
            worker = stack.enter_context(Child(_MODULE))
            worker.say(worker_settings(bench, settings, topics))
            worker.hear()
            workers.append(worker)
        meter = bench.meter()
        for worker in workers:
            worker.say({})
        reports = [worker.hear() for worker in workers]
        load = meter.read()
    assert all(report["records"] == len(values) for report in reports), "every worker makes a record of every article"
    began_s, ended_s = min(each["first_read_s"] for each in reports), max(each["last_commit_s"] for each in reports)
    return Run(
        len(values) / (ended_s - began_s), load, {"alone": [len(values) / each["working_s"] for each in reports]}
    )


def worker_settings(bench: Bench, settings: Settings, topics: Topics) -> dict[str, object]:
    """The settings as JSON; with tasks, no model and no precision may be named beside them."""
    values: dict[str, object] = bench.settings_for(topics, settings).model_dump(
        mode="json", exclude={"model": {"source", "precision"}} if settings.tasks else {}
    )
    return values


def run_checkout(bench: Bench, values: Sequence[bytes], checkout: Path) -> Run:
    """`enricher run` of the code in another folder, with this environment's packages: entities in fp32, without tasks."""
    with bench.topics(values) as topics, tempfile.TemporaryDirectory(prefix="bench-tasks-") as folder:
        summary = Path(folder) / "summary.json"
        environment = os.environ | {
            "PYTHONPATH": str(checkout),
            "ENRICHER_MODEL__PRECISION": "fp32",
            **topics.variables("bench-0"),
        }
        command = [sys.executable, "-m", "enricher", "run", "--until-caught-up", "--summary", str(summary)]
        meter = bench.meter()
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=_CHECKOUT_S, stderr=subprocess.DEVNULL)
        load = meter.read()
        done = orjson.loads(summary.read_bytes())
    assert done["published"] == len(values), "a backlog is done to its end"
    return Run(done["published"] / done["working_s"], load)
