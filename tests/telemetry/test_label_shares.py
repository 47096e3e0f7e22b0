"""Labels by task: the bound on their number, their shares, and that the alert knows the bound."""

from __future__ import annotations

import yaml

from deploy.monitoring.generator.files import ALERTS
from enricher.worker.stats.counters import MOST_LABELS, OTHER
from enricher.worker.telemetry.instruments import bound_labels, shares_of

MANY = {("topics", f"label-{number}"): number + 1 for number in range(200)}


def test_a_task_has_at_most_64_labels_and_the_rest_are_other() -> None:
    """Nothing is left out of the sum."""
    kept = bound_labels({("ner", "ORG"): 5, **MANY})
    assert MOST_LABELS + 1 == sum(task == "topics" for task, _ in kept)
    assert 5 == kept["ner", "ORG"]
    assert sum(range(MOST_LABELS + 1, 201)) == kept["topics", OTHER]
    assert sum(MANY.values()) + 5 == sum(kept.values())


def test_a_bounded_counter_never_decreases() -> None:
    """Labels that appear later do not displace others, whatever their number."""
    before = bound_labels(MANY)
    after = bound_labels({**MANY, ("topics", "label-199"): 10_000, ("topics", "late"): 50_000})
    assert before.keys() == after.keys()
    assert all(after[pair] >= count for pair, count in before.items())


def test_what_is_bounded_already_stays_as_it_is() -> None:
    """The worker counts at most 64 labels by name, and `other`."""
    once = bound_labels(MANY)
    assert once == bound_labels(once)
    other_first = {("topics", OTHER): 7, **once}
    assert MOST_LABELS + 1 == len(bound_labels(other_first))


def test_shares_are_those_of_a_task() -> None:
    """They add up to 1 for each task; a task that found nothing has none."""
    counts = {("ner", "ORG"): 3, ("ner", "PER"): 1, ("topics", "Sport"): 9, ("empty", "x"): 0}
    assert {("ner", "ORG"): 0.75, ("ner", "PER"): 0.25, ("topics", "Sport"): 1.0} == shares_of(counts)


def test_the_alert_leaves_out_tasks_whose_workers_count_different_labels() -> None:
    """From the bound on, each worker counts those labels that it found first."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    (alert,) = (rule for rule in rules if rule["alert"] == "EnricherLabelDrift")
    assert f"< {MOST_LABELS}" in alert["expr"]
