"""The leg `tasks`: its checkpoints, its ratios and its claims."""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.benched import forked
from support.topics import QUICK_TO_START

from enricher.worker.build.loaded_tasks import load_tasks, plan_tasks
from enricher.worker.settings import Settings, load_settings
from tools.bench import child
from tools.bench.backlog import run_backlog
from tools.bench.bench import Bench
from tools.bench.legs.tasks.checkpoints import Sources, make_checkpoints
from tools.bench.legs.tasks.crews import run_workers, worker_settings
from tools.bench.legs.tasks.report import (
    FOUR,
    FOUR_WORKERS,
    OF_FOUR,
    ONE,
    ONE_WORKER,
    PLAIN,
    Results,
    outcome,
)
from tools.bench.load import articles
from tools.bench.machine import Load
from tools.bench.repeating import Run
from tools.kafka import Cluster
from tools.topics import Topics

QUIET, NOISY = Load(10.0, 1.9, 0.1, 0.0), Load(10.0, 1.0, 0.1, 0.9)


def run(rate: float, load: Load = QUIET) -> Run:
    """A run of a worker that padded nothing."""
    return Run(rate, load, {"padding_share": 0.0})


def results(four: float, workers: float, load: Load = QUIET) -> Results:
    """Entities alone run at 100 articles/s."""
    runs = {name: [run(rate, load)] for name, rate in {PLAIN: 100.0, ONE: 100.0, FOUR: four}.items()}
    crews = {ONE_WORKER: [run(90.0, load)], FOUR_WORKERS: [run(workers, load)]}
    return Results({"news": runs, "headlines": runs}, crews)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """The checkpoints of all tasks."""
    return make_checkpoints(tmp_path_factory.mktemp("checkpoints"))


def test_the_checkpoints_share_an_encoder(sources: Sources) -> None:
    """One worker takes all four."""
    plan = plan_tasks(sources.settings(load_settings(), *OF_FOUR))
    assert plan.why_apart is None
    assert ["ner", "classification", "classification", "embedding"] == [each.head.kind for each in plan.checkpoints]


def test_settings_of_a_worker_survive_json(sources: Sources) -> None:
    """A process reads the same tasks, precision and topics; with tasks no model is named."""
    settings = sources.settings(load_settings(), "topic", "ner")

    class Stub:
        def settings_for(self, topics: Topics, settings: Settings) -> Settings:
            kafka = settings.kafka.model_copy(update={"input_topic": topics.input})
            return settings.model_copy(update={"kafka": kafka})

    read = Settings(**cast("dict[str, Any]", worker_settings(cast("Any", Stub()), settings, Topics.named("", "some"))))
    assert ["topic", "ner"] == list(read.tasks)
    assert "some.articles" == read.kafka.input_topic


def test_every_aim_has_a_claim_that_can_fail() -> None:
    """All hold on good runs; slow ones miss theirs, and disturbed ones hold nothing."""
    assert all(claim.held for claim in outcome(results(97, 30)).claims)
    slow = outcome(results(96, 33)).claims
    assert {"four", "one worker"} == {
        start for start in ("four", "one task", "one worker") for claim in slow
        if claim.text.startswith(start) and not claim.held
    }  # fmt: skip
    assert not any(claim.held for claim in outcome(results(97, 30, NOISY)).claims)


@pytest.mark.broker
def test_workers_of_one_task_each_do_the_whole_backlog(
    broker: Cluster, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process with two tasks, and as two processes with a task each: every article has its record."""
    monkeypatch.setattr(child, "launch", forked)
    for name, value in QUICK_TO_START.items():
        monkeypatch.setenv(name, value)
    bench = Bench(1, quick=True, say=print)
    vars(bench)["cluster"] = broker
    both = sources.settings(bench.settings, "topic", "tone")
    run = run_backlog(bench, "headlines", 10, settings=both, tasks=load_tasks(both))
    assert {"topic": {"ran": 10}, "tone": {"ran": 10}} == {
        name: task["outcomes"] for name, task in run.detail["tasks"].items()
    }
    crew = [sources.settings(bench.settings, name) for name in ("topic", "tone")]
    assert run_workers(bench, articles("headlines", 10), crew).rate > 0
