"""`enricher index verify`: right or wrong from topic and index alone, also while records come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from commands.cli_runner import run
from support.operating import commit, delete_records, write
from support.search_server import Held, SearchServer, serving
from support.topics import Topics, make_topics

from enricher.errors import BrokerError, RecoveryExhausted
from enricher.indexing.index_verify import verify_index
from enricher.indexing.search_clients import open_index
from enricher.worker.kafka.ranges import Progress
from enricher.worker.settings import load_settings
from tools.kafka import Cluster
from tools.topics import make_topics as create

pytestmark = pytest.mark.broker

PARTITIONS = 2
RECORDS = [("a", 5, 0), ("b", 3, 1), ("gone", 2, 0), ("gone", 4, None), ("a", 9, 0), ("b", 1, 1)]
RIGHT = {"a": 9, "b": 3}


def output(name: str, version: int, partition: int | None, *, deleted: bool = False) -> dict[str, Any]:
    """A record of the output topic, as arguments of `produce`. Without a partition it is a tombstone in partition 0."""
    deleted = deleted or partition is None
    value = None if deleted else orjson.dumps({"id": name, "entities": []})
    headers = [("enricher.version", b"0"), ("enricher.version", str(version).encode())]  # the last one counts
    return {"key": name.encode(), "value": value, "partition": partition or 0, "headers": headers}


@pytest.fixture
def topics(broker: Cluster) -> Topics:
    """A topic with two documents and a deleted one, which the indexers have read."""
    topics = make_topics(broker.bootstrap_servers, PARTITIONS)
    write(topics.bootstrap_servers, topics.output, (output(*record) for record in RECORDS))
    commit(topics.bootstrap_servers, f"{topics.group}.index", topics.output, {0: 1_000_000, 1: 1_000_000})
    return topics


@pytest.fixture
def search() -> Iterator[SearchServer]:
    """An index that is right."""
    with serving(SearchServer(exists=True)) as search:
        hold(search, RIGHT)
        yield search


def hold(search: SearchServer, versions: Mapping[str, int]) -> None:
    """Let the index hold these versions."""
    search.documents = {name: Held(version, {}) for name, version in versions.items()}


def verified(topics: Topics, search: SearchServer, *options: str, **settings: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report of the command."""
    result = run("index", "verify", "--json", *options, env=environment(topics, search, **settings))
    return result.exit_code, json.loads(result.stdout) if result.stdout else {"error": result.exception}


def environment(topics: Topics, search: SearchServer, **settings: str) -> dict[str, str]:
    """The settings of the command."""
    return {**topics.environment, "ENRICHER_INDEX__URL": search.url, **settings}


def kinds(report: Mapping[str, Any]) -> dict[str, int]:
    """How many documents differ, by kind."""
    return {each["kind"]: each["count"] for each in report["differences"]}


def test_a_right_index_is_right_and_a_wrong_one_is_named(topics: Topics, search: SearchServer) -> None:
    """Older records of a document, and the later one with a lower version, want nothing.

    What is wrong has exit code 8, the rule, and the document. test_version_comparison.py has the other kinds of differences.
    """
    code, report = verified(topics, search)
    assert (0, True, {}) == (code, report["holds"], kinds(report)), report
    assert (6, 2, 2, 0) == tuple(report[name] for name in ("records", "documents", "in_index", "behind"))
    assert "the index is right" in run("index", "verify", env=environment(topics, search)).stdout
    hold(search, {"a": 9})
    code, report = verified(topics, search)
    assert (8, False, {"missing": 1}) == (code, report["holds"], kinds(report))
    shown = run("index", "verify", env=environment(topics, search)).stdout
    assert "'b'" in shown
    assert "the index is wrong" in shown


def test_what_is_written_and_indexed_meanwhile_is_not_wrong(topics: Topics, search: SearchServer) -> None:
    """Between the ends and the reading of the index: an article, a newer one, a delete. What has no record is wrong."""
    newer = [output("new", 20, 0), output("a", 21, 0), output("b", 22, 1, deleted=True)]

    def meanwhile(doing: str, _done: int, _total: int) -> None:
        if doing == "waiting for the indexers" and "new" not in search.documents:
            write(topics.bootstrap_servers, topics.output, newer)
            hold(search, {"new": 20, "a": 21})

    assert {} == differences(topics, search, meanwhile)
    hold(search, {"new": 20, "a": 21, "b": 3})
    assert {"came back": 1} == differences(topics, search, meanwhile)


def differences(topics: Topics, search: SearchServer, progress: Progress) -> Mapping[str, int]:
    """Verify in this process, so that a test can do something meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(topics, search).items():
            patch.setenv(name, value)
        settings = load_settings()
    index = open_index(settings.index)
    try:
        return verify_index(settings, [topics.output], index, wait_s=0, progress=progress).counts
    finally:
        index.close()


def test_indexers_that_are_behind_are_waited_for_and_named(topics: Topics, search: SearchServer) -> None:
    """Until the time is over; what is missing may still come."""
    write(topics.bootstrap_servers, topics.output, [output("late", 30, 1)])
    commit(topics.bootstrap_servers, f"{topics.group}.index", topics.output, {0: 4, 1: 2})
    code, report = verified(topics, search, "--wait", "0.1")
    assert (8, {"missing": 1}, 1) == (code, kinds(report), report["behind"])
    assert "may still come" in report["notes"][0]


def test_a_record_that_the_index_refused_is_a_note(topics: Topics, search: SearchServer) -> None:
    """Its dead letter says why; another version of the document is still missed."""
    write(topics.bootstrap_servers, topics.output, [output("bad", 40, 0)])
    hold(search, RIGHT)
    letters = f"{topics.output}.letters"
    create(topics.bootstrap_servers, [letters], 1)
    write(topics.bootstrap_servers, letters, [output("bad", 40, 0)])
    assert 8 == verified(topics, search, "--wait", "0")[0]
    code, report = verified(topics, search, "--wait", "0", ENRICHER_INDEX__DEAD_LETTER_TOPIC=letters)
    assert (0, {}) == (code, kinds(report))
    assert any("1 newest records are dead letters of the indexer" in note for note in report["notes"])


def test_documents_whose_records_retention_removed_are_a_note(topics: Topics, search: SearchServer) -> None:
    """Nobody can tell whether one without a record is surplus; one in another version than its record's is still wrong."""
    delete_records(topics.bootstrap_servers, topics.output, {1: 1})
    write(topics.bootstrap_servers, topics.output, [output("c", 6, 1)])
    delete_records(topics.bootstrap_servers, topics.output, {1: 2})
    hold(search, {**RIGHT, "c": 6})
    code, report = verified(topics, search, "--wait", "0")
    assert (0, {}) == (code, kinds(report))
    assert any("retention has removed records" in note for note in report["notes"])
    hold(search, {**RIGHT, "c": 5})
    assert {"older": 1} == kinds(verified(topics, search, "--wait", "0")[1])


def test_records_that_make_no_document_are_a_note(topics: Topics, search: SearchServer) -> None:
    """The indexer cannot write them either: without a version, or a tombstone without a key."""
    bad: list[dict[str, Any]] = [{"headers": []}, {"key": None, "value": None}]
    write(topics.bootstrap_servers, topics.output, [{**output("x", 60, 0), **each} for each in bad])
    code, report = verified(topics, search, "--wait", "0")
    assert (0, {}) == (code, kinds(report))
    assert any(note.startswith("2 records make no document") for note in report["notes"])


def test_an_index_or_a_topic_that_is_not_there_is_named(topics: Topics, search: SearchServer) -> None:
    """Before anything is compared."""
    _, report = verified(topics, search, ENRICHER_KAFKA__OUTPUT_TOPIC="nowhere")
    assert isinstance(report["error"], BrokerError)
    assert "'nowhere'" in str(report["error"])
    _, report = verified(topics, search, ENRICHER_INDEX__URL="http://127.0.0.1:9", ENRICHER_INDEX__GIVE_UP_S="1")
    assert isinstance(report["error"], RecoveryExhausted)
