"""The consumer that `deploy/index-consumers.md` links, run between a broker and a bulk API."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Message
from kafka.harness import Sent, as_sent, headers_of, publish, short_articles, transaction, worker
from support.http_serving import http_server
from support.logs import new_log
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.topics import PARTITIONS, Topics, make_topics

from tools.kafka import Cluster

pytestmark = pytest.mark.broker

PROGRAM = Path(__file__).resolve().parents[2] / "deploy" / "python" / "index_consumer.py"
VERSIONED = re.compile(r', "version": version, "version_type": "external_gte"')
Item = dict[str, Any]


@dataclass(slots=True)
class BulkApi:
    """As much of OpenSearch's and Elasticsearch's `_bulk` as the program needs; versions are judged as they do.

    `troubles`: of the next requests, one each. One is told the actions and may answer for them: a status of the whole
    request, or None for no answer; or a list with the status of each action that is not to be done.
    """

    found: dict[str, tuple[int, Item | None]] = field(default_factory=dict)
    """Version and document by id; deleted documents are None."""
    troubles: list[Callable[[BulkApi, list[Item]], int | list[int] | None]] = field(default_factory=list)
    url: str = ""

    @property
    def documents(self) -> dict[str, tuple[int, Item]]:
        """What a search finds."""
        return {key: (version, body) for key, (version, body) in self.found.items() if body is not None}

    def bulk(self, actions: list[Item], statuses: list[int] | None = None) -> bytes:
        """Do the actions, but those with a status; returns the answer."""
        items = [
            self._done(action) if not status else {action["kind"]: {"status": status, "error": {}}}
            for action, status in zip(actions, statuses or [0] * len(actions), strict=True)
        ]
        return orjson.dumps({"errors": True, "items": items})

    def _done(self, action: Item) -> Item:
        key, version = action["_id"], action.get("version", 0)
        before, body = self.found.get(key, (0, None))
        if version < before and "version_type" in action:
            return {action["kind"]: {"status": 409, "error": {"type": "version_conflict_engine_exception"}}}
        self.found[key] = version, action["body"]
        missing = action["kind"] == "delete" and body is None
        return {action["kind"]: {"status": 404 if missing else 200}}


def actions_in(body: bytes) -> list[Item]:
    """The actions of a request, each with its kind and its document."""
    lines, actions = iter(body.splitlines()), []
    for line in lines:
        ((kind, place),) = orjson.loads(line).items()
        actions.append({"kind": kind, "body": orjson.loads(next(lines)) if kind == "index" else None, **place})
    return actions


@contextmanager
def bulk_api(*troubles: Callable[[BulkApi, list[Item]], int | list[int] | None]) -> Iterator[BulkApi]:
    """One that listens on loopback."""
    api = BulkApi(troubles=list(troubles))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            actions = actions_in(self.rfile.read(int(self.headers["Content-Length"])))
            answer = api.troubles.pop(0)(api, actions) if api.troubles else []
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            self.wfile.write(b"" if isinstance(answer, int) else api.bulk(actions, answer or None))

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http_server(Handler) as url:
        api.url = f"{url}/articles/_bulk"
        yield api


@contextmanager
def consumer(
    folder: Path, topics: Topics, group: str, url: str, change: Callable[[str], str] = str
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, after `change`; killed at the end."""
    file = folder / "consumer.py"
    file.write_text(change(PROGRAM.read_text("utf-8")), "utf-8")
    arguments = (topics.bootstrap_servers, topics.output, group, url)
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
        places = committed_and_ends(self.topics.bootstrap_servers, group, self.topics.output)
        return all(places[message.partition() or 0][0] > (message.offset() or 0) for message in self.outputs)

    def touched_by(self, group: str) -> bool:
        """Whether a group has committed any of them."""
        places = committed_and_ends(self.topics.bootstrap_servers, group, self.topics.output)
        return any(places[message.partition() or 0][0] > (message.offset() or 0) for message in self.outputs)


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


def busy_for_the_first_of_each_key(_api: BulkApi, actions: list[Item]) -> list[int]:
    """429 for these, while later actions of the same keys are done."""
    ids = [action["_id"] for action in actions]
    return [429 * (key not in ids[:number]) for number, key in enumerate(ids)]


def cut_off(api: BulkApi, actions: list[Item]) -> None:
    """All is done, and there is no answer."""
    api.bulk(actions)


def test_the_consumer_leaves_the_newest_record_of_each_key(made: Made, tmp_path: Path) -> None:
    """Through 503, a cut connection and 429; and once more from the beginning, as after a replay or by a late consumer."""
    wanted = newest(made.outputs)
    assert 18 == len(wanted)
    with bulk_api(lambda _api, _actions: 503, cut_off, busy_for_the_first_of_each_key) as api:
        for group in (f"{made.topics.group}.first", f"{made.topics.group}.late"):
            with consumer(tmp_path, made.topics, group, api.url):
                wait_until(partial(made.indexed_by, group), PATIENCE_S, "all is indexed")
            assert wanted == api.documents
        assert not api.troubles


def test_without_versions_the_same_consumer_leaves_older_records(made: Made, tmp_path: Path) -> None:
    """The control: an action that is repeated after its successor brings an old record back, or a deleted one."""
    group = f"{made.topics.group}.control"
    with (
        bulk_api(busy_for_the_first_of_each_key) as api,
        consumer(tmp_path, made.topics, group, api.url, lambda text: VERSIONED.sub("", text)),
    ):
        wait_until(partial(made.indexed_by, group), PATIENCE_S, "all is indexed")
    wanted = {key: body for key, (_, body) in newest(made.outputs).items()}
    assert wanted != {key: body for key, (_, body) in api.documents.items()}


@pytest.mark.parametrize("status", [400, 404])
def test_what_the_index_refuses_ends_the_consumer_and_nothing_is_committed(
    made: Made, tmp_path: Path, status: int
) -> None:
    """A mapping conflict, or an index that is not there: a restart begins with the same record, and nothing is lost."""
    group = f"{made.topics.group}.{status}"
    with (
        bulk_api(lambda _api, actions: [*([0] * (len(actions) - 1)), status]) as api,
        consumer(tmp_path, made.topics, group, api.url) as run,
    ):
        assert 1 == run.wait(PATIENCE_S)
    assert not made.touched_by(group)


@pytest.mark.parametrize("key", [None, b"a-7"])
def test_a_record_without_key_or_version_ends_the_consumer(broker: Cluster, tmp_path: Path, key: bytes | None) -> None:
    """Such a record has no document, or none of an age; it is not skipped."""
    topics = make_topics(broker.bootstrap_servers)
    publish(topics.bootstrap_servers, topics.output, [Sent(key, b"{}")])
    with bulk_api() as api, consumer(tmp_path, topics, topics.group, api.url) as run:
        assert 1 == run.wait(PATIENCE_S)
    assert not api.found
