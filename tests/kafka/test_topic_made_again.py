"""An input topic that is deleted and created again ends the worker, and its command lets the group read the new one."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands.cli_runner import run
from confluent_kafka import Uuid
from kafka.clients import config_for, ends_for, poll_until, records_of, release_of
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish, short_articles, worker
from offsets.test_set import set_at
from support.made_again import make_again, topic_id
from support.operating import admin_of
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.topicwatch import TopicReplaced

pytestmark = pytest.mark.broker


def fill(topics: Topics, partition_records: int) -> int:
    """So many records in each of the four partitions; returns how many that is in all."""
    keys = [f"k{number}".encode() for number in range(4 * partition_records)]
    return len(publish(topics.bootstrap_servers, topics.input, [Sent(key, b"v") for key in keys]))


def test_offsets_of_an_old_topic_are_not_committed_for_the_new_one(topics: Topics) -> None:
    """The transaction detects it, and so does the recovery after any other trouble."""
    before = fill(topics, 10)
    source, sink = ends_for(config_for(topics))
    records = records_of(source, before)
    make_again(topics.bootstrap_servers, topics.input)
    with pytest.raises(TopicReplaced, match="enricher offsets set"):
        sink.publish(release_of(records))
    sink.recover()
    with pytest.raises(TopicReplaced):
        source.rewind()
    assert [] == read_all(topics.bootstrap_servers, topics.output)


def test_a_worker_ends_and_after_its_command_nothing_is_lost_or_doubled(topics: Topics, tmp_path: Path) -> None:
    """Although the new topic has grown past the position in the old one."""
    old = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(60)))
    log = tmp_path / "log"
    with worker(topics.environment, log=log, stub=True) as process:
        wait_until(lambda: len(read_all(topics.bootstrap_servers, topics.output)) == len(old), PATIENCE_S, "outputs")
        before = topic_id(topics.bootstrap_servers, topics.input)
        now = make_again(topics.bootstrap_servers, topics.input)
        new = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(200, seed=2)))
        assert 4 == process.wait(PATIENCE_S)
    message = log.read_text("utf-8")
    assert f"its id is {now}, and the group has read {before}" in message
    assert f"enricher offsets set {topics.group} {topics.input} --at beginning`" in message
    set_at(topics, "beginning")
    with worker(topics.environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
    outputs = read_all(topics.bootstrap_servers, topics.output)
    of_new = [each for each in outputs if headers_of(each)["enricher.source.topic.id"] == now.encode()]
    assert_exactly_once(of_new, new)
    assert len(old) == len(outputs) - len(of_new)
    assert 0 == run("verify", env=topics.environment).exit_code


def test_a_topic_that_is_there_no_more_is_trouble_not_the_end(topics: Topics) -> None:
    """Between deletion and creation nothing is committed, and the worker does not exit."""
    config = config_for(topics, request_timeout_s=2)
    before = fill(topics, 5)
    source, sink = ends_for(config)
    records = records_of(source, before)
    admin = admin_of(topics.bootstrap_servers)
    [deleted] = admin.delete_topics([topics.input]).values()
    deleted.result(timeout=PATIENCE_S)
    poll_until(source, lambda: topics.input not in admin.list_topics(timeout=PATIENCE_S).topics)
    with pytest.raises(TransactionTrouble):
        sink.publish(release_of(records))
    with pytest.raises(TransactionTrouble, match=r"no topic|asking"):
        source.rewind()


def test_a_broker_that_lags_does_not_end_a_healthy_worker(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports the id of the topic before the one that is read, until it has heard of the new one."""
    source, sink = ends_for(config_for(topics))
    records = records_of(source, fill(topics, 5))
    asked, ask = list[object](), source.watch.client.describe_topics

    def lagging(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  those of the client
        answers = ask(*arguments, **options)
        asked.append(answers)
        if len(asked) > 1:
            return answers
        late = Future[Any]()
        late.set_result(SimpleNamespace(partitions=range(4), topic_id=Uuid(1, 2)))
        return {**answers, topics.input: late}  # not in place: the client completes its own

    monkeypatch.setattr(source.watch.client, "describe_topics", lagging)
    sink.publish(release_of(records))
    assert 2 == len(asked)
    assert len(records) == len(read_all(topics.bootstrap_servers, topics.output))
