"""The producer on a real broker: all or nothing, refusals, fencing, new producers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from kafka.clients import (
    config_for,
    dead,
    encoder_of,
    ends_for,
    grow,
    inputs,
    opened,
    poll_until,
    records_of,
    release_of,
    sink_for,
)
from kafka.harness import Sent, header_list, headers_of, publish
from support.operating import alter
from support.reading import read_all
from support.topics import Topics

from enricher.errors import (
    EnricherError,
    Fenced,
    MissingTopic,
    RefusedOutput,
    TransactionTrouble,
)
from enricher.worker.kafka.properties import KafkaConfig

pytestmark = pytest.mark.broker


def test_a_record_without_key_is_refused_by_a_compacted_topic(topics: Topics) -> None:
    """Only the record that breaks the topic's rule is named, not its neighbours in the same request."""
    alter(topics.bootstrap_servers, topics.output, {"cleanup.policy": "compact"})
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, [*inputs(8), Sent(None, b"no key")])
    source, sink = ends_for(config)
    with pytest.raises(RefusedOutput) as refused:
        sink.publish(release_of(records_of(source, 9)))
    assert [ticket.raw.key for ticket in refused.value.outcomes] == [None]


def test_a_slow_transaction_is_followed_by_a_new_producer(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that took longer than a retry needs may have been sent twice; the next transaction gets a new epoch."""
    monkeypatch.setattr(KafkaConfig, "retry_pause_s", 0.0)
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(2))
    source, _ = opened(config)
    sink, counters = sink_for(source, config)
    first, second = records_of(source, 2)
    sink.publish(release_of([first]))
    assert counters.producers_renewed == 1
    sink.publish(release_of([second]))
    assert len(read_all(topics.bootstrap_servers, topics.output)) == 2


def test_dead_letters_keep_the_raw_record_and_tombstones_pass(topics: Topics) -> None:
    """Raw key, value and headers untouched, reasons beside them; large values are left out and said to be."""
    config = config_for(topics)
    headers = [("trace", b"1"), ("trace", None)]
    publish(topics.bootstrap_servers, topics.input, [Sent(b"bad", b"{", headers), Sent(b"huge", b"x" * 50_000)])
    source, _ = opened(config)
    sink, _ = sink_for(source, config, encoder=encoder_of(max_dead_letter_bytes=20_000))
    sink.publish(release_of(records_of(source, 2), dead))
    letters = {message.key(): message for message in read_all(topics.bootstrap_servers, topics.dead_letters)}
    assert letters[b"bad"].value() == b"{"
    assert header_list(letters[b"bad"])[:2] == headers
    assert headers_of(letters[b"bad"])["enricher.dlq.error.message"] == b"not JSON"
    assert letters[b"huge"].value() is None
    assert headers_of(letters[b"huge"])["enricher.dlq.value.omitted_bytes"] == b"50000"


def test_inputs_without_an_output_partition_of_their_number_are_placed_by_their_key(topics: Topics) -> None:
    """With more input partitions than output partitions, where the settings allow it; none is lost."""
    grow(topics, 8, topics.input)
    config = config_for(topics, allow_fewer_partitions=True)
    places = publish(topics.bootstrap_servers, topics.input, inputs(40))
    source, diary = opened(config)
    poll_until(source, lambda: len(diary.owned) == 8)
    source.rewind()
    sink, _ = sink_for(source, config)
    sink.publish(release_of(records_of(source, 40)))
    outputs = read_all(topics.bootstrap_servers, topics.output)
    assert {message.key() for message in outputs} == {sent.key for sent in places.values()}


def test_a_missing_output_topic_is_named(topics: Topics) -> None:
    """The worker does not start, and the message says which topic to create."""
    source, _ = opened(config_for(topics))
    with pytest.raises(MissingTopic, match=r"'nowhere'.*topics create"):
        sink_for(source, config_for(topics, output_topic="nowhere"))


class _LosesItsReason(Producer):
    """As the client was seen to behave when it was fenced during a flush."""

    def flush(self, *arguments: float) -> int:
        """Flushes, and fails without a reason."""
        super().flush(*arguments)
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")


@pytest.mark.parametrize(("fenced", "error"), [(True, Fenced), (False, TransactionTrouble)])
def test_a_flush_that_loses_its_reason_is_asked_for_it(
    topics: Topics,
    fenced: bool,  # noqa: FBT001  a parameter of the test
    error: type[EnricherError],
) -> None:
    """Fencing is distinguished from other trouble. Neither is a crash."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(5))
    source, _ = opened(config)
    sink, _ = sink_for(source, config, producer_class=_LosesItsReason)
    release = release_of(records_of(source, 5))
    if fenced:
        sink_for(source, config)
    with pytest.raises(error):
        sink.publish(release)
