"""A real Prometheus scrapes a real worker under load: every query has an answer, every rule evaluates, alerts fire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.topics import make_topics

from deploy.monitoring.generator.files import ALERTS, RECORDING
from deploy.monitoring.generator.prometheus import PROGRAM, Prometheus, impatient_rules
from deploy.monitoring.generator.scene import feeding, published, worker
from deploy.monitoring.generator.seen import Answer, answers, page, questions, unanswered
from tools.kafka import Cluster
from tools.programs import found, missing
from tools.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(found(PROGRAM) is None, reason=missing(PROGRAM)),
]
WAIT_S = 120.0
AGE = "job:enricher_oldest_age_seconds:max"
GROWTH_S = 10.0


@dataclass(frozen=True, slots=True)
class Story:
    """What Prometheus showed, first under load, then without a broker."""

    answers: list[Answer]
    rules: dict[str, str]
    firing_under_load: set[str]
    firing_without_broker: set[str]
    aged: bool
    """Whether the age of the oldest record grew by `GROWTH_S` while the broker was away."""
    version: str


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One worker, one Prometheus and a broker of their own, which is killed while the worker has nothing to do.

    If it dies during a transaction, a call of the client may hang until the watchdog ends the worker. Then nothing is left
    to scrape; the fault matrix covers that case.
    """
    rules = RECORDING, impatient_rules(ALERTS, tmp_path_factory.mktemp("rules") / "alerts.yaml")
    with Cluster(nodes=1) as cluster:
        environment = make_topics(cluster.bootstrap_servers).environment
        with worker(environment) as address, Prometheus(address, rules) as prometheus:
            with feeding(environment, address) as feed:
                heard = answers(prometheus)
                under_load = fired(prometheus, "EnricherDeadLetters")
                evaluated = prometheus.healthy_rules()
            assert wait_until(lambda: published(address) == feed.sent, WAIT_S), (
                "the worker has not published everything"
            )
            before_s = age_s(prometheus)
            cluster.nodes[0].kill()
            without_broker = fired(prometheus, "EnricherBrokersAway")
            aged = wait_until(lambda: age_s(prometheus) > before_s + GROWTH_S, WAIT_S)
            yield Story(heard, evaluated, under_load, without_broker, aged, prometheus.version())


def fired(prometheus: Prometheus, alert: str) -> set[str]:
    """Wait for this alert; return all alerts that fire then, or after `WAIT_S`."""
    wait_until(lambda: alert in prometheus.firing(), WAIT_S)
    return prometheus.firing()


def age_s(prometheus: Prometheus) -> float:
    """Age of the oldest record in seconds."""
    return max((sample.value for sample in prometheus.ask(AGE)), default=0.0)


def test_every_query_of_the_dashboard_and_the_rules_has_an_answer(story: Story) -> None:
    """Except those that have none while all is well, each with its reason. The page has a line for each, with its value."""
    assert len(list(questions())) == len(story.answers) > 80
    assert [question.expression for question in unanswered(story.answers)] == []
    lines = [line for line in page(story.answers, story.version).splitlines() if line.startswith("| ")]
    assert len(story.answers) == len(lines) - 1


def test_every_rule_evaluates(story: Story) -> None:
    """Alerts too, on the labels that real series have."""
    assert {name: error for name, error in story.rules.items() if error != "ok"} == {}


def test_dead_letters_fire_their_alert_and_nothing_else_critical_fires(story: Story) -> None:
    """One input in fifty is no article. The rules' waiting times are shortened to seconds."""
    assert "EnricherDeadLetters" in story.firing_under_load
    assert story.firing_under_load.isdisjoint({"EnricherBrokersAway", "EnricherNoWorkerReady", "EnricherTargetDown"})


def test_an_absent_broker_fires_its_alert_while_the_worker_answers(story: Story) -> None:
    """From the closed socket to the alert. Records may wait that no worker can read, so the oldest gets older."""
    assert "EnricherBrokersAway" in story.firing_without_broker
    assert "EnricherTargetDown" not in story.firing_without_broker
    assert story.aged
