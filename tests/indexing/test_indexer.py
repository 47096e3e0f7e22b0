"""The indexer between a real broker and a search index: what is in the index once the group has committed it all."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from indexing.stage import Late, Publishers, Stage, article, hold, make_stage, versions_in
from kafka.harness import headers_of
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.search_server import SearchServer, refuse, serving

from tools.kafka import Cluster

pytestmark = pytest.mark.broker


@pytest.fixture
def search() -> Iterator[SearchServer]:
    """An index."""
    with serving() as server:
        yield server


@pytest.fixture
def stage(broker: Cluster, search: SearchServer) -> Stage:
    """Topics and an index."""
    return make_stage(broker.bootstrap_servers, search.url)


def run_to_the_end(stage: Stage, *arguments: str, **settings: str) -> int:
    """Index what is there; returns the exit code."""
    with stage.indexer("--until-caught-up", *arguments, **settings) as indexer:
        return indexer.wait(PATIENCE_S)


def test_busy_documents_are_sent_again_alone(stage: Stage, search: SearchServer) -> None:
    """The others of their requests are done."""
    publishers, busy = Publishers(), set[str]()
    stage.publish(publishers.story(120))

    def busy_once(key: str, _body: object) -> tuple[int, str, str] | None:
        if key.endswith("7") and key not in busy:
            busy.add(key)
            return 429, "es_rejected_execution_exception", "queue is full"
        return None

    search.item_error = busy_once
    assert 0 == run_to_the_end(stage)
    assert publishers.expected() == versions_in(search)
    assert search.statuses[429] == len(busy)


def test_an_index_that_takes_nothing_ends_the_indexer_with_a_message(stage: Stage, search: SearchServer) -> None:
    """At the bound, with exit code 6, and nothing is committed."""
    stage.publish(Publishers().story(4))
    search.item_error = lambda _key, _body: (503, "unavailable_shards_exception", "primary shard is not active")
    assert 6 == run_to_the_end(stage, index__give_up_s="1")
    assert stage.lag() == 10


def test_too_many_refusals_in_a_row_end_the_indexer_before_dead_letters(stage: Stage, search: SearchServer) -> None:
    """A missing template must not empty the topic into the dead letters."""
    stage.publish(Publishers().story(20))
    search.item_error = lambda _key, _body: (400, "document_parsing_exception", "any")
    for _ in range(2):
        assert 12 == run_to_the_end(stage, dead_letters__max_in_a_row="20", index__max_batch_documents="8")
        assert len(read_all(stage.topics.bootstrap_servers, stage.letters)) <= 20, "a restart counts on"


def test_keys_that_are_not_ids_end_the_indexer_before_deletes_are_lost(stage: Stage, search: SearchServer) -> None:
    """Under `index.document_id=id` nothing is indexed; by their keys, another group indexes and deletes all of it.

    The delete comes later: it is no refusal, so wherever it stood it would end the row.
    """
    publishers = Publishers()
    stage.publish([publishers.write(f"key-{number}", article(f"id-{number}")) for number in range(30)])
    assert 12 == run_to_the_end(stage, index__document_id="id", dead_letters__max_in_a_row="20")
    assert {} == versions_in(search)
    stage.publish([publishers.write("key-0", None)])
    assert 0 == run_to_the_end(stage, index__group_id=f"{stage.topics.group}.by-key")
    assert publishers.expected() == versions_in(search)


def test_a_row_that_has_ended_leaves_room_for_one_more_refusal(stage: Stage, search: SearchServer) -> None:
    """The idle partition goes on to say how long its row was, whatever was indexed since: a restart must not end at once."""
    publishers, limit = Publishers(), {"dead_letters__max_in_a_row": "20"}
    search.item_error = lambda key, _body: None if key == "good-1" else (400, "document_parsing_exception", "any")
    for batch in ([f"bad-{8 * number}" for number in range(20)], ["good-1"], ["bad-2"]):
        stage.publish([publishers.write(key, article(key)) for key in batch])
        assert 0 == run_to_the_end(stage, **limit)
    assert len(read_all(stage.topics.bootstrap_servers, stage.letters)) == 21


def test_a_topic_that_was_made_again_is_noticed(stage: Stage, search: SearchServer) -> None:
    """Under the same epoch it stops the indexer; with a higher one, what was made meanwhile becomes dead letters."""
    before, again = Publishers(), Publishers(topic_id="b" * 22)
    stage.publish([before.write("key-1", article("key-1", 1)), before.write("key-1", article("key-1", 2))])
    assert 0 == run_to_the_end(stage)
    stage.publish([again.write("key-1", article("key-1", 3))])
    assert 2 == run_to_the_end(stage)
    assert before.expected() == versions_in(search)
    raised = Publishers(epoch=1, topic_id="b" * 22)
    stage.publish([raised.write("key-1", article("key-1", 4))])
    assert 0 == run_to_the_end(stage, kafka__epoch="1")
    assert raised.expected() == versions_in(search)
    [letter] = read_all(stage.topics.bootstrap_servers, stage.letters)
    assert b"higher kafka.epoch" in (headers_of(letter)["enricher.index.error.message"] or b"")


def test_an_index_that_was_made_again_gets_everything_again(stage: Stage, search: SearchServer) -> None:
    """It lacks all that the group has committed. The same holds for another index under the same group."""
    publishers = Publishers()
    stage.publish(publishers.story(24))
    assert 0 == run_to_the_end(stage)
    search.documents.clear()
    search.exists, search.mapping = False, {}
    stage.publish([publishers.write("key-1", article("key-1", 1_000))])
    assert 0 == run_to_the_end(stage)
    assert publishers.expected() == versions_in(search)
    read = search.statuses.total()
    assert 0 == run_to_the_end(stage)
    assert read == search.statuses.total(), "only once"


def test_an_index_that_is_deleted_at_the_end_is_filled_again(stage: Stage, search: SearchServer) -> None:
    """The indexer has caught up before it would look at the index again, and must not end with 0 then."""
    publishers, deleted = Publishers(), list[str]()
    stage.publish(publishers.story(120))

    def delete_once(key: str, _body: object) -> None:
        if not deleted and len(search.documents) > 50:
            deleted.append(key)
            search.documents.clear()
            search.mapping = {}

    search.item_error = delete_once
    assert 0 == run_to_the_end(stage)
    assert deleted
    assert publishers.expected() == versions_in(search)


def test_an_index_that_is_deleted_meanwhile_is_noticed(stage: Stage, search: SearchServer) -> None:
    """The next bulk request makes it again, without anything that was there."""
    publishers = Publishers()
    stage.publish(publishers.story(24))
    with stage.indexer(odd="hasty"):
        stage.wait_until_indexed()
        search.documents.clear()
        search.mapping = {}

        def is_whole() -> bool:
            stage.publish([publishers.write("key-1", article("key-1"))])
            return publishers.expected().keys() == versions_in(search).keys()

        wait_until(is_whole, PATIENCE_S, "everything is there again", 0.5)


UPDATED, DELETED, MADE_AGAIN = range(3)
"""What became of a key, by its number modulo three, while a request with its older state was on its way."""


def after_a_late_request(stage: Stage, search: SearchServer, odd: str = "") -> dict[int, set[bool]]:
    """A request of an indexer that was killed is executed when another one has written newer records.

    Returns for each kind of key whether the index holds its newest state.
    """
    publishers, late = Publishers(), Late()
    older = [(f"key-{number}", article(f"key-{number}", 1)) for number in range(30)]
    stage.publish([publishers.write(key, None if int(key[4:]) % 3 == MADE_AGAIN else record) for key, record in older])
    hold(search, late)
    with stage.indexer(odd=odd) as indexer:
        wait_until(lambda: bool(late), PATIENCE_S, "a request is on its way")
        indexer.send_signal(signal.SIGKILL)
        indexer.wait(PATIENCE_S)
    stage.expel()
    newer = [(f"key-{number}", article(f"key-{number}", 2)) for number in range(30)]
    stage.publish([publishers.write(key, None if int(key[4:]) % 3 == DELETED else record) for key, record in newer])
    with stage.indexer("--until-caught-up", odd=odd) as indexer:
        assert 0 == indexer.wait(PATIENCE_S)
    search.bulk(late[0])
    found = {key: body["number"] for key, (_, body) in search.found.items()}
    right: dict[int, set[bool]] = {UPDATED: set(), DELETED: set(), MADE_AGAIN: set()}
    for key, _ in newer:
        kind = int(key[4:]) % 3
        right[kind].add(found.get(key) == (None if kind == DELETED else 2))
    return right


def test_a_request_that_is_executed_late_changes_nothing(stage: Stage, search: SearchServer) -> None:
    """Neither an update nor a deletion is undone, and nothing that was made again is deleted."""
    assert {UPDATED: {True}, DELETED: {True}, MADE_AGAIN: {True}} == after_a_late_request(stage, search)


@pytest.mark.parametrize(
    ("rule", "wrong"), [("no-version", {UPDATED, DELETED, MADE_AGAIN}), ("unversioned-deletes", {MADE_AGAIN})]
)
def test_without_versions_a_late_request_does_harm(
    stage: Stage, search: SearchServer, rule: str, wrong: set[int]
) -> None:
    """The negative controls."""
    right = after_a_late_request(stage, search, rule)
    assert wrong == {kind for kind, are_right in right.items() if False in are_right}


@pytest.mark.parametrize("odd", ["", "commits-first"])
def test_offsets_are_committed_behind_the_answer(stage: Stage, search: SearchServer, odd: str) -> None:
    """An indexer that commits before loses what it had in hand when it was killed: the negative control."""
    publishers, kept = Publishers(), Late()
    stage.publish(publishers.story(40))
    hold(search, kept)
    with stage.indexer(odd=odd) as indexer:
        wait_until(lambda: bool(kept), PATIENCE_S, "a request is on its way")
        indexer.kill()
        indexer.wait(PATIENCE_S)
    stage.expel()
    assert 0 == run_to_the_end(stage)
    is_right = publishers.expected() == versions_in(search)
    assert is_right == (not odd)


def test_an_indexer_that_waits_for_the_index_ends_when_it_is_asked(stage: Stage, search: SearchServer) -> None:
    """At once, and without a commit."""
    stage.publish(Publishers().story(4))
    search.behaviours.extend([refuse(503)] * 1_000)
    with stage.indexer(index__retry_max_s="30") as indexer:
        wait_until(lambda: len(search.sizes) > 2, PATIENCE_S, "it tries again")
        indexer.terminate()
        assert 0 == indexer.wait(PATIENCE_S)
    assert stage.lag() == 10
