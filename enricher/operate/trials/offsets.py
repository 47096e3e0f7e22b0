"""Offsets that are sent in a transaction: committed exactly with it, waited for while it is open, and returned complete."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.operate.trials.clients import CALL_S, Clients, Outcome

_UNANSWERED_S = 3.0
"""How long a request must stay unanswered while a transaction is open; usually it takes milliseconds."""
_UNANSWERED = {KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT}  # noqa: SLF001  the client's names
_METADATA = "enricher/1 topic-id=AAAAAAAAAAAAAAAAAAAAAQ attempts=2 alone=1 " + "x" * 160


def in_the_transaction(clients: Clients) -> Outcome:
    """Read the committed offset before, during and after an aborted transaction, then after a committed one."""
    with clients.producer() as producer, clients.consumer() as stable, clients.consumer("read_uncommitted") as unstable:
        clients.write_and_commit(producer, offset=1)
        producer.begin_transaction()
        clients.write(producer, "aborted")
        clients.send_offset(producer, 2)
        during = clients.committed_offset(unstable).offset
        producer.abort_transaction(CALL_S)
        aborted = clients.committed_offset(stable).offset
        clients.write_and_commit(producer, "committed", offset=3)
        clients.wait(lambda: clients.committed_offset(stable).offset == 3, CALL_S)
        committed = clients.committed_offset(stable).offset
    seen = f"committed was 1; with 2 sent {during}, after the abort {aborted}; with 3 sent and committed {committed}"
    return Outcome((during, aborted, committed) == (1, 1, 3), seen)


def stable_fetch(clients: Clients) -> Outcome:
    """Request the committed offset while a transaction that has sent one is open, and again after its commit."""
    with clients.producer() as producer, clients.consumer() as stable:
        clients.write_and_commit(producer, offset=1)
        first = clients.committed_offset(stable).offset
        producer.begin_transaction()
        clients.send_offset(producer, 2)
        early = _answer_within(clients, stable, _UNANSWERED_S)
        producer.commit_transaction(CALL_S)
        late = clients.committed_offset(stable).offset
    while_open = f"no answer for {_UNANSWERED_S:.0f} s" if early is None else f"the answer {early}"
    seen = f"committed was {first}; with 2 sent and the transaction open {while_open}, after the commit {late}"
    return Outcome((first, early, late) == (1, None, 2), seen)


def metadata(clients: Clients) -> Outcome:
    """Commit an offset with metadata and a leader epoch, and read all three back."""
    sent = TopicPartition(clients.topic, clients.number, 1, _METADATA, 0)
    with clients.producer() as producer, clients.consumer() as consumer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction([sent], clients.no_member(), CALL_S)
        producer.commit_transaction(CALL_S)
        found = clients.committed_offset(consumer)
    text = "came back" if found.metadata == _METADATA else f"came back as {found.metadata!r}"
    seen = f"offset {found.offset}; the text of {len(_METADATA)} bytes {text}; leader epoch 0 as {found.leader_epoch}"
    return Outcome((found.offset, found.metadata, found.leader_epoch) == (1, _METADATA, 0), seen)


def _answer_within(clients: Clients, consumer: Consumer, timeout_s: float) -> int | None:
    try:
        return clients.committed_offset(consumer, timeout_s).offset
    except KafkaException as exception:
        if exception.args[0].code() in _UNANSWERED:
            return None
        raise
