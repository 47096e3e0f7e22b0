"""A real Prometheus scrapes a real worker under load: every query has an answer, every rule evaluates, an alert fires."""

from __future__ import annotations

import pytest
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from deploy.monitoring.generator.files import ALERTS, RECORDING
from deploy.monitoring.generator.prometheus import PROGRAM, Prometheus, impatient_rules
from deploy.monitoring.generator.scene import feeding, worker
from deploy.monitoring.generator.seen import answers, page, questions, unanswered
from tools.programs import found, missing

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(found(PROGRAM) is None, reason=missing(PROGRAM)),
]


def test_every_query_has_an_answer_and_every_rule_evaluates(
    topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Except those that have none while all is well, each with its reason; the page has a line for each, with its value.

    One input in fifty is no article, so the alert about dead letters fires: the rules' waiting times are a few seconds here.
    """
    rules = RECORDING, impatient_rules(ALERTS, tmp_path_factory.mktemp("rules") / "alerts.yaml")
    with worker(topics.environment) as address, Prometheus(address, rules) as prometheus:
        with feeding(topics.environment, address):
            found_answers = answers(prometheus)
            wait_until(lambda: "EnricherDeadLetters" in prometheus.firing(), PATIENCE_S, "the alert fires")
            evaluated, firing = prometheus.healthy_rules(), prometheus.firing()
        lines = [line for line in page(found_answers, prometheus.version()).splitlines() if line.startswith("| ")]
    assert len(list(questions())) == len(found_answers) > 80
    assert [question.expression for question in unanswered(found_answers)] == []
    assert len(found_answers) == len(lines) - 1
    assert {name: error for name, error in evaluated.items() if error != "ok"} == {}
    assert firing.isdisjoint({"EnricherBrokersAway", "EnricherNoWorkerReady", "EnricherTargetDown"})
