"""Baselines of labels: the file, the bound on their number, and when a share is far away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest
import yaml

from deploy.monitoring.generator.files import ALERTS
from enricher.errors import SettingsError
from enricher.operate.labels import FEWEST_LABELS, Found, has_drifted
from enricher.worker.stats.counters import MOST_LABELS, OTHER
from enricher.worker.telemetry.baseline import bound_labels, read_baseline, shares_of

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


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The file also says what was counted, and when."""
    counts = {("ner", "ORG"): 300, ("ner", "PER"): 100, **MANY}
    path = tmp_path / "labels.json"
    path.write_bytes(Found(Counter(counts), records=70).baseline("entities"))
    shares = read_baseline(path)
    assert (0.75, 0.25) == (shares["ner", "ORG"], shares["ner", "PER"])
    assert pytest.approx(1, abs=1e-4) == sum(share for (task, _), share in shares.items() if task == "topics")
    assert ("topics", "label-199") in shares, "the most frequent ones are kept"
    document = orjson.loads(path.read_bytes())
    assert (70, "entities", 400) == (document["records"], document["topic"], document["tasks"]["ner"]["labels"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"version": 2, "tasks": {}}',
        b'{"version": 1}',
        b'{"version": 1, "tasks": {"ner": {}}}',
        b'{"version": 1, "tasks": {"ner": {"shares": [1]}}}',
        b'{"version": 1, "tasks": {"ner": {"shares": {"ORG": "a lot"}}}}',
        b'{"version": 1, "tasks": {"ner": {"shares": {"ORG": true}}}}',
        b'{"version": 1, "tasks": {"ner": {"shares": {"ORG": 1.5}}}}',
    ],
)
def test_another_file_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    """The message names the file."""
    path = tmp_path / "labels.json"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"labels\.json is not a baseline"):
        read_baseline(path)


def test_a_file_that_is_not_there_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(SettingsError, match=r"gone\.json: No such file"):
        read_baseline(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("share", "baseline", "total", "far"),
    [
        (0.0, 0.31, 10_000, True),
        (0.15, 0.31, 10_000, True),
        (0.16, 0.31, 10_000, False),
        (0.46, 0.31, 10_000, False),
        (0.47, 0.31, 10_000, True),
        (0.0, 0.31, FEWEST_LABELS - 1, False),
        (0.08, 0.04, 10_000, False),
        (0.06, 0.0, 10_000, True),
        (0.0, 0.04, 10_000, True),
        (0.0, 0.04, 2_000, False),
        (0.005, 0.04, 10_000, False),
    ],
)
def test_a_share_is_far_by_five_points_and_half_its_baseline_or_nearly_gone(
    share: float, baseline: float, total: float, *, far: bool
) -> None:
    """Small labels may double on some days, but do not vanish."""
    assert far is has_drifted(share, baseline, total)


def test_the_alert_has_the_same_thresholds() -> None:
    """Command and alert must not disagree."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    (alert,) = (rule for rule in rules if rule["alert"] == "EnricherLabelDrift")
    expression = " ".join(alert["expr"].split())
    for part in (
        "clamp_min(0.5 * job:enricher_labels_baseline:ratio, 0.05)",
        "< 0.1 * job:enricher_labels_baseline:ratio",
        "job:enricher_labels_of_task:increase6h >= 100 ",
        f"job:enricher_labels_of_task:increase6h >= {FEWEST_LABELS}",
        f"< {MOST_LABELS}",
    ):
        assert part in expression
