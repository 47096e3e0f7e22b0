"""The consumer that `deploy/index-consumers.md` links, run between a broker and a bulk API."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Message
from kafka.harness import Sent, as_sent, headers_of, publish, short_articles, transaction, worker
from support.logs import new_log
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.search_server import Answer, Handler, cut_after, refuse, serving
from support.topics import PARTITIONS, Topics, make_topics

from tools.kafka import Cluster

pytestmark = pytest.mark.broker

PROGRAM = Path(__file__).resolve().parents[2] / "deploy" / "python" / "index_consumer.py"
VERSIONED = re.compile(r', "version": version, "version_type": "external_gte"')
Item = dict[str, Any]


@contextmanager
def consumer(
    folder: Path, topics: Topics, group: str, url: str, change: Callable[[str], str] = str
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, after `change`; killed at the end."""
    file = folder / "consumer.py"
    file.write_text(change(PROGRAM.read_text("utf-8")), "utf-8")
    arguments = (topics.bootstrap_servers, topics.output, group, f"{url}/articles/_bulk")
    with new_log("consumer").open("ab") as log, subprocess.Popen([sys.executable, file, *arguments], stderr=log) as run:
        try:
            yield run
        finally:
            run.kill()


@dataclass(frozen=True, slots=True)
class Made:
    """Topics, and the committed records in the output."""

    topics: Topics
    outputs: list[Message]

    def indexed_by(self, group: str) -> bool:
        """Whether a group has committed all of them."""
        return all(self._committed_by(group))

    def touched_by(self, group: str) -> bool:
        """Whether a group has committed any of them."""
        return any(self._committed_by(group))

    def _committed_by(self, group: str) -> list[bool]:
        places = committed_and_ends(self.topics.bootstrap_servers, group, self.topics.output)
        return [places[message.partition() or 0][0] > (message.offset() or 0) for message in self.outputs]


@pytest.fixture(scope="module")
def made(broker: Cluster) -> Made:
    """What a worker made of 20 articles that are updated twice, and of two deletes; and records of an aborted attempt."""
    topics, articles = make_topics(broker.bootstrap_servers), short_articles(20)
    inputs = [as_sent(each | {"title": f"{each['title']}, {edition}"}) for edition in "123" for each in articles]
    inputs += [Sent(as_sent(article).key, None) for article in articles[:2]]
    publish(topics.bootstrap_servers, topics.input, inputs)
    with worker(topics.environment, "--until-caught-up", stub=True) as process:
        assert process.wait(PATIENCE_S) == 0
    with transaction(topics.bootstrap_servers, f"{topics.group}.aborted", commit=False) as producer:
        headers: list[tuple[str, str | bytes | None]] = [("enricher.version", str(2**62))]
        for partition in range(PARTITIONS):
            producer.produce(topics.output, b'{"id": "aborted"}', b"short-5", partition=partition, headers=headers)
    return Made(topics, read_all(topics.bootstrap_servers, topics.output))


def newest(outputs: list[Message]) -> dict[str, tuple[int, Item]]:
    """The newest record of each key, by position in its partition; deleted ones left out."""
    found = {}
    for message in sorted(outputs, key=lambda each: each.offset() or 0):
        version = int(headers_of(message)["enricher.version"] or b"")
        found[(message.key() or b"").decode()] = version, message.value()
    return {key: (version, orjson.loads(value)) for key, (version, value) in found.items() if value is not None}


def busy_for_the_first_of_each_key(handler: Handler, body: bytes) -> Answer:
    """429 for these, while later actions of the same keys are done."""
    met = set[str]()

    def busy(key: str, _body: object) -> tuple[int, str, str] | None:
        first = key not in met
        met.add(key)
        return (429, "rejected_execution_exception", "busy") if first else None

    handler.search.item_error = busy
    answer = handler.search.bulk(body)
    handler.search.item_error = lambda _key, _body: None
    return answer


def refuse_the_last(handler: Handler, body: bytes) -> Answer:
    """400 for the last action of a request; all other actions are done."""
    _, found = handler.search.bulk(body)
    for result in found["items"][-1].values():
        result |= {"status": 400, "error": {}}
    return 200, found


def test_the_consumer_leaves_the_newest_record_of_each_key(made: Made, tmp_path: Path) -> None:
    """Through 503, a cut connection and 429; and once more from the beginning, as after a replay or by a late consumer."""
    wanted = newest(made.outputs)
    assert 18 == len(wanted)
    with serving() as index:
        index.behaviours += [refuse(503), cut_after, busy_for_the_first_of_each_key]
        for group in (f"{made.topics.group}.first", f"{made.topics.group}.late"):
            with consumer(tmp_path, made.topics, group, index.url):
                wait_until(partial(made.indexed_by, group), PATIENCE_S, "all is indexed")
            assert wanted == index.found
        assert not index.behaviours


def test_without_versions_the_same_consumer_leaves_older_records(made: Made, tmp_path: Path) -> None:
    """The control: an action that is repeated after its successor brings an old record back, or a deleted one."""
    group = f"{made.topics.group}.control"
    with serving() as index:
        index.behaviours.append(busy_for_the_first_of_each_key)
        with consumer(tmp_path, made.topics, group, index.url, lambda text: VERSIONED.sub("", text)):
            wait_until(partial(made.indexed_by, group), PATIENCE_S, "all is indexed")
    wanted = {key: body for key, (_, body) in newest(made.outputs).items()}
    assert wanted != {key: body for key, (_, body) in index.found.items()}


def test_what_the_index_refuses_ends_the_consumer_and_nothing_is_committed(made: Made, tmp_path: Path) -> None:
    """A mapping conflict, for example: a restart begins with the same record, and nothing is lost."""
    group = f"{made.topics.group}.refused"
    with serving() as index:
        index.behaviours.append(refuse_the_last)
        with consumer(tmp_path, made.topics, group, index.url) as run:
            assert 1 == run.wait(PATIENCE_S)
    assert not made.touched_by(group)


def test_a_record_without_a_version_ends_the_consumer(topics: Topics, tmp_path: Path) -> None:
    """Its document would be of no age; it is not skipped."""
    publish(topics.bootstrap_servers, topics.output, [Sent(b"a-7", b"{}")])
    with serving() as index, consumer(tmp_path, topics, topics.group, index.url) as run:
        assert 1 == run.wait(PATIENCE_S)
    assert not index.documents
