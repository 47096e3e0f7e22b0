"""`enricher labels`: what it counts, the baseline that it writes, and the comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from commands.cli_runner import enriched_record, run
from support.operating import write

from enricher.errors import SettingsError
from enricher.operate.labels import Found, compare, labels_of
from enricher.worker.records import Partition, RawRecord
from enricher.worker.stats.counters import MOST_LABELS

if TYPE_CHECKING:
    from support.topics import Topics


def document(*labels: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401  any JSON
    """An enriched record with entities of these labels."""
    return {"id": "a", "entities": [{"label": label} for label in labels], **more}


def record(value: bytes | None, timestamp_s: float | None = None) -> RawRecord:
    """A record of the output topic."""
    return RawRecord(Partition("entities", 0), 0, b"k", value, timestamp_s=timestamp_s)


def test_without_tasks_the_task_is_ner() -> None:
    """As in the metrics."""
    assert [("ner", "ORG"), ("ner", "PER")] == labels_of(document("ORG", "PER"))


def test_entities_and_classes_have_their_task() -> None:
    """Entities name theirs where several tasks find some; else it is the only one that does."""
    tasks = [{"name": "topics", "kind": "classification"}, {"name": "names", "kind": "ner"}]
    one = document("ORG", tasks=tasks, classifications=[{"task": "topics", "label": "Sport", "score": 0.9}])
    assert [("names", "ORG"), ("topics", "Sport")] == labels_of(one)
    several = document(tasks=[*tasks, {"name": "german", "kind": "ner"}])
    several["entities"] = [{"label": "ORG", "task": "german"}, {"label": "PER", "task": "names"}]
    assert [("german", "ORG"), ("names", "PER")] == labels_of(several)


@pytest.mark.parametrize("value", [None, b"", b"no JSON", b"[]", b"{}", b'{"entities": [5]}', b"\xff"])
def test_what_is_no_enriched_record_does_not_count(value: bytes | None) -> None:
    """Tombstones, and what other programs write to the topic."""
    found = Found()
    found.add(record(value, 5.0))
    assert (0, {}, None) == (found.records, dict(found.counts), found.first_s)


def test_the_baseline_says_when_its_records_were_written() -> None:
    """From the oldest to the newest; records without a timestamp count too."""
    found = Found()
    for at_s in (86_400.0, None, 0.0):
        found.add(record(orjson.dumps(document("ORG")), at_s))
    baseline = orjson.loads(found.baseline("entities"))
    assert (3, {"labels": 3, "shares": {"ORG": 1.0}}) == (baseline["records"], baseline["tasks"]["ner"])
    assert ("1970-01-01T00:00:00+00:00", "1970-01-02T00:00:00+00:00") == (baseline["first_at"], baseline["last_at"])


def test_a_label_that_is_no_longer_found_is_listed_and_far_away() -> None:
    """Its share is 0; tasks without a baseline are not compared."""
    counts = {("ner", "PER"): 1_500, ("ner", "LOC"): 500, ("topics", "Sport"): 4_000}
    lines = compare(counts, {("ner", "ORG"): 0.3, ("ner", "PER"): 0.55, ("ner", "LOC"): 0.15, ("gone", "x"): 1.0})
    assert [("PER", False), ("LOC", True), ("ORG", True)] == [
        (line["label"], line["drifted"]) for line in lines if line["task"] == "ner"
    ]
    assert [("ner", 0, 0.0)] == [
        (each["task"], each["count"], each["share"]) for each in lines if each["label"] == "ORG"
    ]
    assert ["Sport"] == [line["label"] for line in lines if "baseline" not in line]


def test_a_task_with_very_many_labels_is_bounded_and_not_compared() -> None:
    """The most frequent ones are told apart, in whichever order they came."""
    counts = {("topics", f"label-{number}"): number + 1 for number in range(200)}
    lines = compare(counts, {("topics", "label-3"): 1.0})
    assert MOST_LABELS + 1 == len(lines)
    assert {"label-199", "label-136", "other"} <= {line["label"] for line in lines}
    assert not any("drifted" in line for line in lines)


@pytest.mark.broker
def test_a_baseline_is_written_and_compared_with(topics: Topics, tmp_path: Path) -> None:
    """Records of all partitions count; a baseline of few labels is written with a remark."""
    records = [enriched_record(str(n), (topics.input, n % 4, n)) for n in range(8)]
    write(topics.bootstrap_servers, topics.output, [*records, {"value": b"not ours", "partition": 2}])
    path = tmp_path / "labels.json"
    result = run("labels", "--out", str(path), env=topics.environment)
    assert result.exit_code == 0, result.output
    assert "ner: only 16 labels; a baseline should have 1,000" in result.stderr
    assert {"LOC": 0.5, "PER": 0.5} == orjson.loads(path.read_bytes())["tasks"]["ner"]["shares"]
    compared_with = run("labels", "--json", env={**topics.environment, "ENRICHER_HEALTH__LABELS_BASELINE": str(path)})
    told = orjson.loads(compared_with.stdout)
    assert 8 == told["records"]
    assert [("LOC", 8, 0.5, False), ("PER", 8, 0.5, False)] == [
        (line["label"], line["count"], line["baseline"], line["drifted"]) for line in told["labels"]
    ]


@pytest.mark.broker
def test_a_topic_without_labels_has_no_baseline(topics: Topics, tmp_path: Path) -> None:
    """Nothing is written."""
    result = run("labels", "--out", str(tmp_path / "labels.json"), env=topics.environment)
    assert isinstance(result.exception, SettingsError)
    assert topics.output in str(result.exception)
    assert not list(tmp_path.iterdir())
