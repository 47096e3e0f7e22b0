"""`enricher lag` against the real broker: transactions, retention, a new group, and exit codes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from commands.cli_runner import enriched_record, run
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


@pytest.mark.broker
def test_the_age_is_that_of_the_record_at_the_committed_offset(topics: Topics) -> None:
    """It is neither that of the first record in the topic nor that of the last."""
    write(topics, 0, 3 * HOUR_S, 2 * HOUR_S, HOUR_S)
    commit(topics, {0: 1})
    seen = looked(topics)
    first = seen["partitions"][0]
    assert (first["start"], first["worker_start"]) == (0, 1)
    assert (first["committed"], first["end"], first["behind"]) == (1, 4, 3), (
        "the transaction's marker has an offset too"
    )
    assert 2 * HOUR_S <= first["age_s"] < 2 * HOUR_S + _SLACK_S
    assert (seen["behind"], seen["age_s"], seen["waiting_partitions"]) == (3, first["age_s"], 1)


@pytest.mark.broker
def test_nothing_waits_where_only_markers_are_left(topics: Topics) -> None:
    """The committed offset is below the end, but there is nothing to read: the age is 0, and there is no alarm."""
    write(topics, 0, HOUR_S)
    with transaction(topics.bootstrap_servers, f"{topics.group}-upstream", commit=False) as producer:
        producer.produce(topics.input, b"{}", partition=0)
    commit(topics, {0: 1})
    seen = looked(topics, "--max-age-s", "0", "--max-lag", "0")
    first = seen["partitions"][0]
    assert (first["committed"], first["end"], first["behind"], first["age_s"]) == (1, 4, 0, 0)
    assert seen["exceeded"] == []


@pytest.mark.broker
def test_an_open_transaction_is_remarked_and_does_not_wait(topics: Topics) -> None:
    """Nobody can read its records yet."""
    with transaction(topics.bootstrap_servers, f"{topics.group}-upstream", end=False) as producer:
        producer.produce(topics.input, b"{}", partition=2)
        assert producer.flush(PATIENCE_S) == 0
        open_one = looked(topics)["partitions"][2]
        assert (open_one["behind"], open_one["hidden"]) == (0, 1)
        assert "still open" in open_one["remark"]


@pytest.mark.broker
def test_a_group_that_never_committed_begins_at_the_beginning(topics: Topics) -> None:
    """Its first worker starts there too; an empty partition has no lag."""
    write(topics, 1, 2 * HOUR_S, HOUR_S)
    seen = looked(topics)
    assert [each["committed"] for each in seen["partitions"]] == [None] * 4
    assert [each["behind"] for each in seen["partitions"]] == [0, 3, 0, 0]
    assert 2 * HOUR_S <= seen["age_s"] < 2 * HOUR_S + _SLACK_S
    assert "no committed offset: a new group starts at 0" in seen["partitions"][1]["remark"]


@pytest.mark.broker
@pytest.mark.usefixtures("shared_models")
def test_a_group_whose_offsets_are_gone_is_behind_from_the_beginning(topics: Topics) -> None:
    """Nobody knows better without a search: that overstates the lag, and never understates it."""
    write(topics, 1, 3 * HOUR_S, 2 * HOUR_S, HOUR_S)
    output = enriched_record("k", (topics.input, 1, 1)) | {"partition": 1}
    operating.write(topics.bootstrap_servers, topics.output, [output])
    partition = looked(topics)["partitions"][1]
    assert (partition["committed"], partition["worker_start"]) == (None, 0)
    assert "one that has outputs refuses" in partition["remark"]


@pytest.mark.broker
def test_the_oldest_record_counts_if_the_committed_one_was_deleted(topics: Topics) -> None:
    """The remark says how many offsets were lost."""
    write(topics, 3, 4 * HOUR_S, 3 * HOUR_S, 2 * HOUR_S, HOUR_S)
    commit(topics, {3: 1})
    delete_records(topics.bootstrap_servers, topics.input, {3: 3})
    last = looked(topics)["partitions"][3]
    assert (last["committed"], last["start"], last["worker_start"], last["behind"]) == (1, 3, 3, 2)
    assert HOUR_S <= last["age_s"] < HOUR_S + _SLACK_S
    assert "2 offsets were deleted unread" in last["remark"]


@pytest.mark.broker
def test_a_committed_offset_beyond_the_end_is_that_of_an_earlier_topic(topics: Topics) -> None:
    """A worker starts at the beginning of such a topic, and so does the count."""
    write(topics, 0, HOUR_S)
    commit(topics, {0: 500})
    first = looked(topics)["partitions"][0]
    assert (first["start"], first["worker_start"], first["behind"]) == (0, 0, 2)
    assert "created again" in first["remark"]


@pytest.mark.broker
def test_a_record_from_the_future_has_no_age_and_waits(topics: Topics) -> None:
    """Clocks differ, so an age is never below 0."""
    write(topics, 0, -HOUR_S / 2)
    seen = looked(topics)
    assert (seen["age_s"], seen["waiting_partitions"]) == (0, 1)


@pytest.mark.broker
def test_the_exit_code_is_for_scripts(topics: Topics) -> None:
    """It is 9 if the age or the lag is above its limit, else 0."""
    write(topics, 0, HOUR_S)
    assert "waited for" in looked(topics, "--max-age-s", "60", code=9)["exceeded"][0]
    assert "2 behind" in looked(topics, "--max-lag", "1", code=9)["exceeded"][0]
    looked(topics, "--max-age-s", str(3 * HOUR_S), "--max-lag", "2")
    result = run("lag", "--max-age-s", "60", env=topics.environment)
    assert result.exit_code == 9
    assert "too far behind" in result.stdout


@pytest.mark.broker
def test_the_shape_of_the_json_is_kept(topics: Topics) -> None:
    """Scripts read it: names may be added, but none removed."""
    seen = looked(topics)
    assert {"group", "topic", "behind", "age_s", "waiting_partitions", "workers", "partitions", "exceeded"} <= set(seen)
    names = {"number", "committed", "start", "end", "behind", "age_s", "hidden", "remark"}
    assert names <= set(seen["partitions"][0])
    assert (seen["group"], seen["topic"], seen["workers"]) == (topics.group, topics.input, 0)
    assert [each["number"] for each in seen["partitions"]] == [0, 1, 2, 3]


@pytest.mark.broker
def test_people_get_a_table(topics: Topics) -> None:
    """There is a row for each partition, and a summary."""
    write(topics, 0, 2 * HOUR_S)
    text = run("lag", env=topics.environment).stdout
    assert "committed" in text
    assert "2 behind in 1 of 4 partitions, the oldest record for 2 h" in text
    assert "0 workers" in text


@pytest.mark.broker
def test_group_and_topic_may_be_named(topics: Topics) -> None:
    """Options override the settings."""
    elsewhere = replace(topics, environment={**topics.environment, "ENRICHER_KAFKA__INPUT_TOPIC": "elsewhere"})
    seen = looked(elsewhere, "--group", "somebody-else", "--input", topics.input)
    assert (seen["group"], seen["topic"]) == ("somebody-else", topics.input)


@pytest.mark.broker
def test_a_missing_topic_is_reported(topics: Topics) -> None:
    """The exit code is that of a refusal by the broker."""
    result = run("lag", "--input", "there-is-none", env=topics.environment)
    assert getattr(result.exception, "exit_code", None) == 4
    assert "there is no topic 'there-is-none'" in str(result.exception)


@pytest.mark.slow
def test_an_absent_broker_is_reported_within_the_timeout() -> None:
    """The command ends with an error instead of waiting."""
    environment = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "1"}
    result = run("lag", env=environment)
    assert getattr(result.exception, "exit_code", None) == 4
    assert "127.0.0.1:1" in str(result.exception)


def test_an_unknown_age_is_an_alarm_where_an_age_was_asked_for() -> None:
    """A record without a timestamp may be of any age."""
    backlog = Backlog("group", "topic", [PartitionBacklog("topic", 0, 0, 0, 0, 5, 5, None)], 1)
    assert limits_exceeded(backlog, 1e9, None) != []
    assert limits_exceeded(backlog, None, 5) == []
    assert "unknown" in summary(backlog)


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (185.9, "3 min 5 s"),
        (7260, "2 h 1 min"),
        (187_201, "2 d 4 h"),
    ],
)
def test_an_age_reads_well(age_s: float, text: str) -> None:
    """It has the two largest units."""
    assert age_text(age_s) == text
