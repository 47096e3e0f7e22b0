"""`enricher lag` against the real broker: transactions, retention, a new group, and exit codes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from commands.cli_runner import run
from kafka.harness import transaction
from support import operating
from support.operating import delete_records
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.operate.lag import Backlog, PartitionBacklog, age_text, limits_exceeded, summary

HOUR_S = 3600.0
_SLACK_S = 600.0
"""The longest that a test may take; the ages below differ by more."""


def write(topics: Topics, partition: int, *ages_s: float) -> None:
    """Committed records of these ages, in one transaction."""
    now_s = time.time()
    with transaction(topics.bootstrap_servers, f"{topics.group}-upstream") as producer:
        for age_s in ages_s:
            producer.produce(topics.input, b"{}", partition=partition, timestamp=int(1000 * (now_s - age_s)))


def commit(topics: Topics, offsets: dict[int, int]) -> None:
    """Commit offsets for the group."""
    operating.commit(topics.bootstrap_servers, topics.group, topics.input, offsets)


def looked(topics: Topics, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The output of `lag --json`."""
    result = run("lag", "--json", *arguments, env=topics.environment)
    assert result.exit_code == code, result.output
    seen: dict[str, Any] = json.loads(result.stdout)
    return seen


def assert_shown(partition: dict[str, Any], counts: tuple[int | None, ...], age_s: float, remark: str) -> None:
    """`counts`: committed offset, the one at which a worker starts, end, offsets behind, hidden ones."""
    names = ("committed", "worker_start", "end", "behind", "hidden")
    assert counts == tuple(partition[name] for name in names)
    assert age_s <= partition["age_s"] < age_s + _SLACK_S
    assert (remark == "") == (partition["remark"] == "")
    assert remark in partition["remark"]


@pytest.mark.broker
def test_lag_and_age_are_those_of_the_records_that_a_worker_would_read(topics: Topics) -> None:
    """The age is that of the record at the committed offset, neither the first in the topic nor the last.

    Nothing waits where only markers are left, or where a transaction is still open. The oldest record counts if the
    committed one was deleted.
    """
    upstream = f"{topics.group}-upstream"
    write(topics, 0, 3 * HOUR_S, 2 * HOUR_S, HOUR_S)
    write(topics, 1, HOUR_S)
    with transaction(topics.bootstrap_servers, upstream, commit=False) as producer:
        producer.produce(topics.input, b"{}", partition=1)
    write(topics, 3, 4 * HOUR_S, 3 * HOUR_S, 2 * HOUR_S, HOUR_S)
    commit(topics, {0: 1, 1: 1, 2: 0, 3: 1})
    delete_records(topics.bootstrap_servers, topics.input, {3: 3})
    with transaction(topics.bootstrap_servers, upstream, end=False) as producer:
        producer.produce(topics.input, b"{}", partition=2)
        assert producer.flush(PATIENCE_S) == 0
        seen = looked(topics)
    records, markers, open_one, deleted = seen["partitions"]
    assert_shown(records, (1, 1, 4, 3, 0), 2 * HOUR_S, "")
    assert_shown(markers, (1, 1, 4, 0, 0), 0, "")
    assert_shown(open_one, (0, 0, 0, 0, 1), 0, "still open")
    assert_shown(deleted, (1, 3, 5, 2, 0), HOUR_S, "2 offsets were deleted unread")
    assert (seen["behind"], seen["age_s"], seen["waiting_partitions"]) == (5, records["age_s"], 2)


@pytest.mark.broker
def test_without_an_offset_that_counts_all_is_behind_from_the_beginning(topics: Topics) -> None:
    """A first worker starts there, and one of a topic that was created again; an empty partition has no lag.

    Clocks differ: a record from the future waits, and its age is not below 0.
    """
    write(topics, 0, HOUR_S)
    write(topics, 1, 2 * HOUR_S, HOUR_S)
    write(topics, 2, -HOUR_S / 2)
    commit(topics, {0: 500})
    again, new, early, empty = looked(topics)["partitions"]
    assert_shown(again, (500, 0, 2, 2, 0), HOUR_S, "created again")
    assert_shown(new, (None, 0, 3, 3, 0), 2 * HOUR_S, "no committed offset: a new group starts at 0")
    assert_shown(early, (None, 0, 2, 2, 0), 0, "no committed offset")
    assert_shown(empty, (None, 0, 0, 0, 0), 0, "no committed offset")


@pytest.mark.broker
def test_scripts_get_json_and_an_exit_code_and_people_a_table(topics: Topics) -> None:
    """9 if the age or the lag is above its limit, else 0. Names of the JSON may be added, but none removed."""
    write(topics, 0, 2 * HOUR_S)
    assert "waited for" in looked(topics, "--max-age-s", "60", code=9)["exceeded"][0]
    assert "2 behind" in looked(topics, "--max-lag", "1", code=9)["exceeded"][0]
    seen = looked(topics, "--max-age-s", str(3 * HOUR_S), "--max-lag", "2")
    assert {"group", "topic", "behind", "age_s", "waiting_partitions", "workers", "partitions", "exceeded"} <= set(seen)
    assert (seen["group"], seen["topic"], seen["workers"]) == (topics.group, topics.input, 0)
    assert [each["number"] for each in seen["partitions"]] == [0, 1, 2, 3]
    text = run("lag", "--max-age-s", "60", env=topics.environment).stdout
    assert "too far behind" in text
    assert "2 behind in 1 of 4 partitions, the oldest record for 2:00:0" in text
    assert "0 workers" in text


@pytest.mark.broker
def test_a_missing_topic_is_reported(topics: Topics) -> None:
    """The exit code is that of a refusal by the broker."""
    result = run("lag", env=topics.environment | {"ENRICHER_KAFKA__INPUT_TOPIC": "there-is-none"})
    assert getattr(result.exception, "exit_code", None) == 4
    assert "there is no topic 'there-is-none'" in str(result.exception)


def test_an_unknown_age_is_an_alarm_where_an_age_was_asked_for() -> None:
    """A record without a timestamp may be of any age."""
    backlog = Backlog("group", "topic", [PartitionBacklog("topic", 0, 0, 0, 5, 5, None)], 1)
    assert limits_exceeded(backlog, 1e9, None) != []
    assert limits_exceeded(backlog, None, 5) == []
    assert "unknown" in summary(backlog)


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (59.94, "59.9 s"),
        (185.9, "0:03:05"),
        (187_201, "2 days, 4:00:01"),
    ],
)
def test_an_age_reads_well(age_s: float, text: str) -> None:
    """It has hours and days only if there are some."""
    assert age_text(age_s) == text
