"""`enricher offsets set`: what it prints and commits, what it refuses, and that a worker goes on from there."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commands.cli_runner import run
from kafka.clients import config_for, inputs, joined, poll_until
from kafka.harness import publish
from kafka.test_start import enrich
from support.operating import commit, delete_group, delete_records
from support.reading import commit_of, committed_and_ends
from support.topics import Topics

from enricher.errors import BrokerError, FatalError, SettingsError
from enricher.worker.records import Mark, ReachedLimit
from enricher.worker.rules.commit_metadata import CommitMetadata

pytestmark = pytest.mark.broker


def set_at(topics: Topics, at: str, *options: str) -> list[dict[str, int | None]]:
    """Run it; returns the printed lines. Raises its error."""
    result = run("offsets", "set", topics.group, topics.input, "--at", at, *options, env=topics.environment)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert 0 == result.exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def committed(topics: Topics) -> dict[int, int]:
    """The group's offset of each partition; -1001 if it has none."""
    return {n: at for n, (at, _) in committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).items()}


def test_a_group_with_members_is_refused(topics: Topics) -> None:
    """Its workers would go on where they are, and commit that."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    source, diary = joined(config_for(topics))
    poll_until(source, lambda: bool(diary.owned))
    with pytest.raises(FatalError, match="has members: stop its workers"):
        set_at(topics, "beginning")


def test_beginning_and_end_are_those_that_retention_and_publishers_left(topics: Topics) -> None:
    """The old offsets are printed beside the new ones, null where there was none."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    found = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    ends = {number: end for number, (_, end) in found.items()}
    delete_records(topics.bootstrap_servers, topics.input, {0: 2})
    assert [{"partition": n, "from": None, "to": ends[n]} for n in range(4)] == set_at(topics, "end")
    assert ends == committed(topics)
    assert [{"partition": n, "from": ends[n], "to": 2 if n == 0 else 0} for n in range(4)] == set_at(
        topics, "beginning"
    )
    assert {0: 2, 1: 0, 2: 0, 3: 0} == committed(topics)


def test_a_dry_run_commits_nothing_and_prints_a_file_to_edit(topics: Topics, tmp_path: Path) -> None:
    """`from` is for people, and partitions that are left out stay as they are."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    records = enrich(config, 40)
    delete_group(topics.bootstrap_servers, topics.group)
    rows = set_at(topics, "behind-outputs", "--dry-run")
    assert {-1001} == {*committed(topics).values()}
    assert {r.partition.number: r.offset + 1 for r in records} == {row["partition"]: row["to"] for row in rows}
    file = tmp_path / "offsets.jsonl"
    file.write_text("\n\n".join(json.dumps(row) for row in rows[:3]) + "\n", "utf-8")
    assert rows[:3] == set_at(topics, str(file))
    assert [*(row["to"] for row in rows[:3]), -1001] == [*committed(topics).values()]


def test_one_partition_is_set_beside_others(topics: Topics) -> None:
    """As the refusal of a single lost offset names it."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    commit(topics.bootstrap_servers, topics.group, topics.input, {0: 1, 1: 2, 3: 3})
    assert [{"partition": 2, "from": None, "to": 0}] == set_at(topics, "behind-outputs", "--partition", "2")
    assert {0: 1, 1: 2, 2: 0, 3: 3} == committed(topics)


def test_a_time_is_that_of_records_and_the_end_where_none_is_later(topics: Topics) -> None:
    """A time that is to come would be a typing error."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    found = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    set_at(topics, "2020-01-01")
    assert {0} == {*committed(topics).values()}
    with pytest.raises(SettingsError, match="is in the future"):
        set_at(topics, "2130-01-01T00:00Z")
    set_at(topics, datetime.now(UTC).isoformat())
    assert {number: end for number, (_, end) in found.items()} == committed(topics)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ('{"partition": 0}', SettingsError, "line 1: expected"),
        ('{"partition": 0, "to": 0}\n7', SettingsError, "line 2: expected"),
        ('{"partition": 0, "to": true}', SettingsError, "line 1: partition and offset are whole numbers"),
        ('{"partition": 0, "to": 1}\n{"partition": 0, "to": 2}', SettingsError, "line 2: .* each partition once"),
        ('{"partition": 4, "to": 0}', SettingsError, "has 4 partitions, not 4"),
        ('{"partition": 1, "to": 100}', BrokerError, r"has offsets 0 to \d+, not 100"),
    ],
)
def test_a_file_that_is_not_understood_changes_nothing(
    topics: Topics, tmp_path: Path, content: str, error: type[Exception], message: str
) -> None:
    """The message names the line, or what the topic has: a worker would begin somewhere else."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    file = tmp_path / "offsets.jsonl"
    file.write_text(content, "utf-8")
    with pytest.raises(error, match=message):
        set_at(topics, str(file))
    assert {-1001} == {*committed(topics).values()}


def test_a_word_that_is_no_file_is_refused(topics: Topics) -> None:
    """A typing error must not become an offset."""
    with pytest.raises(SettingsError, match=r"--at begining: No such file.*behind-outputs"):
        set_at(topics, "begining")


def test_what_stands_beside_an_offset_is_kept_but_attempts(topics: Topics) -> None:
    """A limit of dead letters belongs to the group, attempts to one record."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    before = CommitMetadata(None, Mark(2, 1), reached_limit=ReachedLimit(3, 4, "why"))
    commit(topics.bootstrap_servers, topics.group, topics.input, {1: 2}, before.encode())
    set_at(topics, "beginning", "--partition", "1")
    after = CommitMetadata.decode(commit_of(topics.bootstrap_servers, topics.group, topics.input, 1).metadata)
    assert (ReachedLimit(3, 4, "why"), Mark()) == (after.reached_limit, after.mark)
    assert after.topic_id is not None
