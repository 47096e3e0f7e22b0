"""What a redrive does when others write meanwhile, and when its transactions fail or are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from commands.cli_runner import run
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from dead_letters.lettering import Made, die, expected, publish_and_die, redrive, redriven
from kafka.harness import Sent, publish, transaction, worker
from support.made_again import make_again, topic_id
from support.operating import delete_records
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

from enricher.operate.dead_letters import command
from enricher.operate.dead_letters.letters import REDRIVEN_LETTER
from enricher.operate.dead_letters.sender import Sender
from enricher.worker.records import Unreadable

pytestmark = pytest.mark.broker

Hook = Callable[[], None]


def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Hook]]:
    """What the redrive's producer calls, one each time that it gets there.

    `written`: the client has all records, and has sent none. `before`, `after`: a commit.
    """
    waiting: dict[str, list[Hook]] = {name: [] for name in ("written", "before", "after")}

    def call(name: str) -> None:
        (waiting[name].pop(0) if waiting[name] else nothing)()

    class HookedProducer(Producer):
        def flush(self, *arguments: Any) -> int:  # noqa: ANN401  the client's own signature
            call("written")
            return super().flush(*arguments)

        def commit_transaction(self, *arguments: Any) -> None:  # noqa: ANN401  as above
            call("before")
            super().commit_transaction(*arguments)
            call("after")

    monkeypatch.setattr(command, "Sender", partial(Sender, producer_class=HookedProducer))
    return waiting


def fail() -> None:
    """As the client does when it has lost its broker."""
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_an_unknown_outcome_the_next_run_sends_each_once(
    topics: Topics, hooks: dict[str, list[Hook]], when: str
) -> None:
    """It sees in the input whether the transaction took effect. Without keys, nothing else would tell."""
    places = publish(topics.bootstrap_servers, topics.input, [Sent(None, b"%d" % n) for n in range(10)])
    # The first letter of each partition is left, so the committed offset tells nothing.
    seen = set[int]()
    for place, sent in sorted(places.items()):
        die(topics, [Made(place, sent, error_type="Sent" if place[0] in seen else "Left")])
        seen.add(place[0])
    hooks[when] = [fail]
    result = run("dead-letters", "redrive", "--type", "Sent", env=topics.environment)
    assert 6 == getattr(result.exception, "exit_code", None), result.output
    assert "Run it again" in str(result.exception)
    sent_now = redrive(topics, "--type", "Sent").get("sent", 0)
    assert sent_now == (0 if when == "after" else 10 - len(seen))
    assert redrive(topics) == {"sent": len(seen)}
    assert expected(places) == redriven(topics, places)
    assert redrive(topics) == {}


def test_of_two_at_once_one_says_that_the_other_goes_on(topics: Topics, hooks: dict[str, list[Hook]]) -> None:
    """The second one fences the first in the middle of its transaction, and sends everything."""
    places = publish_and_die(topics, [Sent(None, b"%d" % n) for n in range(10)])
    hooks["written"] = [lambda: others.append(redrive(topics))]
    others: list[dict[str, int]] = []
    result = run("dead-letters", "redrive", env=topics.environment)
    assert [{"sent": 10}] == others
    assert 5 == getattr(result.exception, "exit_code", None), result.output
    assert "another redrive" in str(result.exception)
    assert expected(places) == redriven(topics, places)


def test_another_redrive_is_noticed_also_where_this_one_has_sent_nothing(
    topics: Topics, hooks: dict[str, list[Hook]]
) -> None:
    """The other one commits only partitions that this one reaches later, and would send again. Nothing has a key."""
    places = publish(topics.bootstrap_servers, topics.input, [Sent(None, b"%d" % n) for n in range(20)])
    (first, _), *_ = letters = sorted(places.items())
    die(topics, [Made(place, sent, error_type="A" if place[0] == first[0] else "B") for place, sent in letters])
    hooks["written"] = [lambda: others.append(redrive(topics, "--type", "B")["sent"])]
    others: list[int] = []
    result = run("dead-letters", "redrive", "--type", "A", env=topics.environment)
    assert 5 == getattr(result.exception, "exit_code", None), result.output
    assert others == [sum(number != first[0] for number, _ in places)]


def test_a_newer_record_during_the_transaction_is_not_overwritten(topics: Topics, hooks: dict[str, list[Hook]]) -> None:
    """It is in the input before ours, and the look before the transaction has not seen it."""
    places = publish_and_die(topics, [Sent(b"a", b"old"), Sent(b"b", b"only")])
    newer: dict[tuple[int, int], Sent] = {}
    hooks["written"] = [lambda: newer.update(publish(topics.bootstrap_servers, topics.input, [Sent(b"a", b"new")]))]
    assert redrive(topics) == {"sent": 1, "superseded": 1}
    only = {place: sent for place, sent in places.items() if sent.key == b"b"}
    assert expected(only) == redriven(topics, places | newer)


def test_nothing_is_written_over_a_record_in_an_open_transaction(topics: Topics, hooks: dict[str, list[Hook]]) -> None:
    """Nobody knows whether it will count, so the redrive ends, and the next one sees."""
    places = publish_and_die(topics, [Sent(b"a", b"old")])
    [(number, _)] = places
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": f"{topics.group}/open"})
    producer.init_transactions(PATIENCE_S)

    def write() -> None:
        producer.begin_transaction()
        producer.produce(topics.input, b"new", b"a", partition=number)
        assert producer.flush(PATIENCE_S) == 0

    hooks["written"] = [write]
    quick = topics.environment | {"ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5"}
    result = run("dead-letters", "redrive", env=quick)
    assert 6 == getattr(result.exception, "exit_code", None), result.output
    assert "open transaction hides records" in str(result.exception)
    producer.commit_transaction(PATIENCE_S)
    assert redrive(topics) == {"superseded": 1}


def test_a_letter_that_the_input_refuses_is_named_and_holds_up_no_other(topics: Topics) -> None:
    """The topic takes smaller records than it did: only one attempt alone shows which record is refused."""
    inputs = [Sent(b"small", b"x"), Sent(b"large", random.Random(1).randbytes(9_000)), Sent(b"other", b"y")]
    places = publish_and_die(topics, inputs)
    limit_message_bytes(topics, 2_000)
    assert redrive(topics) == {"sent": 2, "refused": 1}
    small = {place: sent for place, sent in places.items() if sent.key != b"large"}
    assert expected(small) == redriven(topics, places)
    limit_message_bytes(topics, 2**20)
    assert redrive(topics) == {"sent": 1}


@pytest.mark.parametrize(("again", "later"), [("input", {"not_ours": 1}), ("dead_letters", {})])
def test_a_topic_that_is_created_again_meanwhile_ends_the_redrive(
    topics: Topics, hooks: dict[str, list[Hook]], again: str, later: dict[str, int]
) -> None:
    """Its partitions are not those of the letters. A later run leaves the letters of another input alone."""
    places = publish_and_die(topics, [Sent(None, b"x")])
    hooks["written"] = [lambda: ids.append(make_again(topics.bootstrap_servers, getattr(topics, again)))]
    ids: list[str] = []
    error = run("dead-letters", "redrive", env=topics.environment).exception
    assert 4 == getattr(error, "exit_code", None), error
    assert redrive(topics) == later
    assert not redriven(topics, places if again == "dead_letters" else {})


def limit_message_bytes(topics: Topics, size_bytes: int) -> None:
    """Let the input topic take batches of at most this size."""
    entry = ConfigEntry("max.message.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topics.input, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_what_retention_has_hidden_is_left_unless_it_is_asked_for(topics: Topics) -> None:
    """A newer record may be among what is gone. A letter without a key has none, and its value is in the letter."""
    places = publish_and_die(topics, [Sent(b"a", b"1"), Sent(None, b"2")])
    publish(topics.bootstrap_servers, topics.input, [Sent(b"x%d" % n, b"x") for n in range(40)])
    delete_records(topics.bootstrap_servers, topics.input, dict.fromkeys(range(4), -1))
    assert redrive(topics) == {"sent": 1, "unchecked": 1}
    assert redrive(topics) == {"unchecked": 1}
    assert redrive(topics, "--unchecked") == {"sent": 1}
    assert expected(places) == redriven(topics, places)


def test_a_letter_behind_one_that_was_left_is_not_sent_twice(topics: Topics) -> None:
    """The first letter keeps the offset at the beginning, and it is committed there: else nobody knows of the other one."""
    with transaction(topics.bootstrap_servers, f"{topics.group}/in") as producer:
        for _ in range(2):
            producer.produce(topics.input, b"x", None, partition=0)
    die(topics, [Made((0, 0), Sent(None, b"x"), error_type="Other"), Made((0, 1), Sent(None, b"x"))])
    assert redrive(topics, "--type", "InvalidArticle") == {"sent": 1, "not_selected": 1}
    delete_records(topics.bootstrap_servers, topics.input, {0: -1})
    assert redrive(topics, "--type", "InvalidArticle") == {"unchecked": 1, "not_selected": 1}


def test_a_copy_that_came_meanwhile_is_noticed_too(topics: Topics, hooks: dict[str, list[Hook]]) -> None:
    """The letter's own record, which an open transaction hid from the look before."""
    places = publish_and_die(topics, [Sent(None, b"x"), Sent(None, b"y", (("n", b"1"),))])
    [first, *_] = read_all(topics.bootstrap_servers, topics.dead_letters)
    name = f"{topic_id(topics.bootstrap_servers, topics.dead_letters)}:{first.partition()}:{first.offset()}".encode()
    copy = Sent(None, first.value(), [(REDRIVEN_LETTER, name)])

    def write() -> None:
        with transaction(topics.bootstrap_servers, f"{topics.group}/in") as producer:
            producer.produce(topics.input, copy.value, None, first.partition() or 0, headers=list(copy.headers))

    hooks["written"] = [write]
    assert redrive(topics) == {"sent": 1}
    assert 1 == sum(sent[2] == copy.value for sent in redriven(topics, places))


def test_a_newer_letter_tells_what_the_input_has_lost(topics: Topics) -> None:
    """Two dead letters of one key, both older than what the input still has: only the newer one is sent."""
    older, newer = Made((0, 3), Sent(b"a", b"older")), Made((0, 7), Sent(b"a", b"newer"), error_type="Other")
    with transaction(topics.bootstrap_servers, f"{topics.group}/in") as producer:
        for _ in range(20):
            producer.produce(topics.input, b"x", b"x", partition=0)
    delete_records(topics.bootstrap_servers, topics.input, {0: -1})
    die(topics, [older, newer])
    assert redrive(topics, "--type", "InvalidArticle", "--unchecked") == {"superseded": 1, "not_selected": 1}


def test_a_letter_of_an_unreadable_batch_is_not_available(topics: Topics) -> None:
    """Its null value is no tombstone: nobody knows what was there."""
    die(topics, [Made((0, 0), Sent(None, None), "decode", "UnreadableBatch", unreadable=Unreadable(0, "damaged"))])
    assert redrive(topics) == {"not_available": 1}


def test_a_worker_that_fails_again_keeps_the_count_and_verify_stays_green(topics: Topics) -> None:
    """The loop ends by its guard, and each input, redriven or not, has one output or dead letter."""
    publish(topics.bootstrap_servers, topics.input, [Sent(b"bad", b"{"), Sent(b"good", b'{"id": "1", "body": "Oslo"}')])
    for _ in range(2):
        work(topics)
        assert redrive(topics, "--max-redrives", "2") == {"sent": 1}
    work(topics)
    assert redrive(topics, "--max-redrives", "2") == {"loop_guard": 1}
    verified = run("verify", env=topics.environment)
    assert verified.exit_code == 0, verified.output


def work(topics: Topics) -> None:
    """Let a worker enrich everything that there is."""
    with worker(topics.environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
