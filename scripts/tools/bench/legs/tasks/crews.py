"""Workers as processes: several that start together, each with its own tasks and topics, and one of any checkout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from enricher.worker.settings import Settings
from tools import enricher_command
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
            worker.ask()  # it answers when its models are loaded
            workers.append(worker)
        meter = bench.meter()
        for worker in workers:
            worker.ask(join=True)
        reports = [worker.hear() for worker in workers]
        load = meter.read()
    assert all(report["records"] == len(values) for report in reports), "every worker makes a record of every article"
    began_s, ended_s = min(each["first_read_s"] for each in reports), max(each["last_commit_s"] for each in reports)
    return Run(len(values) / (ended_s - began_s), load)


def worker_settings(bench: Bench, settings: Settings, topics: Topics) -> dict[str, object]:
    """The settings as JSON; with tasks, no model may be named beside them."""
    values: dict[str, object] = bench.settings_for(topics, settings).model_dump(
        mode="json", exclude={"model": {"source"}} if settings.tasks else {}
    )
    return values


def run_checkout(bench: Bench, values: Sequence[bytes], checkout: Path) -> Run:
    """`enricher run` of the code in another folder, with this environment's packages: entities in fp32, without tasks."""
    with bench.topics(values) as topics:
        own = {"PYTHONPATH": str(checkout), "ENRICHER_MODEL__PRECISION": "fp32"}
        meter = bench.meter()
        done = enricher_command.summary_of("run", variables=own | topics.variables("bench-0"), timeout_s=_CHECKOUT_S)
        load = meter.read()
    assert done["published"] == len(values), "a backlog is done to its end"
    return Run(done["published"] / done["working_s"], load)
