"""The promises of a broker that exactly-once depends on, and a trial of each, which tells what it saw in both directions.

Assumes only the protocol: what clients are told, and how long it may take. Does not use the worker's topics or group.
`deploy/brokers.md` is tested against `PROMISES`; `transactions` decides what a failure means for the operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException

from enricher.errors import BrokerError
from enricher.operate.doctor.trial_clients import (
    CALL_S,
    LEADER_EPOCH,
    METADATA,
    Clients,
    Outcome,
    membership_of,
    refusal,
)

_STAY_S = 1.0
"""How long a reader is watched for records that must not come."""
_EXPIRY_S = 5.0
"""`transaction.timeout.ms` of the transaction that is left open. With a shorter one a slow network would end it early."""
_SCAN_S = 30.0
"""How much later the broker may abort it. Kafka checks every 10 s."""
_REBALANCE_S = 25.0
"""Timeout of one rebalance. A broker waits 3 s for a group's first members, and heartbeats tell members about it."""
_ATTEMPTS = 5
"""The number of attempts for offsets that must be accepted: a rebalance in progress is a valid reason to refuse them."""
_UNANSWERED_S = 3.0
"""How long a request must stay unanswered while a transaction is open; usually it takes milliseconds."""
_UNANSWERED = {KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT}  # noqa: SLF001  the client's names


def visibility(clients: Clients) -> Outcome:
    """Leave a transaction open, commit another behind it, abort the first, and read before and after the abort."""
    with clients.producer("first") as first, clients.producer("second") as second:
        clients.write_and_commit(first, "before")
        first.begin_transaction()
        clients.write(first, "aborted")
        clients.write_and_commit(second, "behind")
        early = clients.values("before", stay_s=_STAY_S)
        first.abort_transaction(CALL_S)
    late = clients.values("behind")
    seen = f"with a transaction open a committed reader saw {_list(early)}, after its abort {_list(late)}"
    return Outcome(early == ["before"] and late == ["before", "behind"], seen)


def fencing_by_id(clients: Clients) -> Outcome:
    """Open a transaction, start a second producer of the same id, and let both commit."""
    with clients.producer() as old:
        old.begin_transaction()
        clients.write(old, "old")
        with clients.producer() as new:
            clients.write_and_commit(new, "new")
            error = refusal(lambda: old.commit_transaction(CALL_S))
            clients.write_and_commit(new, "last")
    found = clients.values("last")
    seen = f"the first producer's commit {_verdict(error)}, and a committed reader saw {_list(found)}"
    return Outcome(error is not None and found == ["new", "last"], seen)


def fencing_by_generation(clients: Clients) -> Outcome:
    """Send offsets as a current member, as a member of an older generation, and as one that has left its group."""
    with clients.consumer() as staying:
        with clients.consumer() as leaving:
            _join(clients, leaving)
            _must_be_taken(clients, leaving, 1)
            older = membership_of(leaving)
            _join(clients, staying, leaving)
            of_older = _send(clients, 2, older)
            gone, before = membership_of(leaving), membership_of(staying)
        # Closing it left the group. The other member takes over its partitions.
        _wait(clients, lambda: membership_of(staying) != before, [staying])
        of_gone = _send(clients, 3, gone)
        offset = clients.committed_offset(staying).offset
        _must_be_taken(clients, staying, 4)
    seen = (
        f"offsets of a member were accepted, that of an older generation {_verdict(of_older)}, that of a member that left "
        f"{_verdict(of_gone)}; committed was 1 before and {offset} after"
    )
    return Outcome(bool(of_older and of_gone) and offset == 1, seen)


def offsets_in_the_transaction(clients: Clients) -> Outcome:
    """Read the committed offset before, during and after an aborted transaction, and with its text after a committed one."""
    with clients.producer() as producer, clients.consumer() as stable, clients.consumer("read_uncommitted") as unstable:
        clients.write_and_commit(producer, offset=1)
        first = clients.committed_offset(stable).offset
        producer.begin_transaction()
        clients.send_offset(producer, 2)
        early = _answer_within(clients, stable, _UNANSWERED_S)
        during = clients.committed_offset(unstable).offset
        producer.abort_transaction(CALL_S)
        aborted = clients.committed_offset(stable).offset
        clients.write_and_commit(producer, offset=3)
        found = clients.committed_offset(stable)
    while_open = f"no answer for {_UNANSWERED_S:.0f} s" if early is None else f"the answer {early}"
    text = "with" if found.metadata == METADATA else f"with {found.metadata!r} instead of"
    seen = (
        f"committed was {first}; with 2 sent {while_open}, and {during} for who does not wait; after the abort {aborted}; "
        f"with 3 sent and committed {found.offset}, {text} its text, leader epoch {found.leader_epoch}"
    )
    kept = (found.offset, found.metadata, found.leader_epoch) == (3, METADATA, LEADER_EPOCH)
    return Outcome(kept and (first, early, during, aborted) == (1, None, 1, 1), seen)


def expiry(clients: Clients) -> Outcome:
    """Leave a transaction open for longer than its timeout, and wait for what was committed behind it."""
    with clients.producer("abandoned", timeout_s=_EXPIRY_S) as abandoned, clients.producer("second") as second:
        began_s = time.monotonic()
        abandoned.begin_transaction()
        clients.write(abandoned, "abandoned")
        clients.write_and_commit(second, "behind")
        if "behind" not in clients.values("behind", limit_s=_EXPIRY_S + _SCAN_S):
            seen = f"a transaction with a timeout of {_EXPIRY_S:.0f} s was still open {_SCAN_S:.0f} s after that"
            return Outcome(holds=False, seen=seen)
        took_s = time.monotonic() - began_s
        error = refusal(lambda: abandoned.commit_transaction(CALL_S))
        clients.write_and_commit(second, "last")
    found = clients.values("last")
    seen = (
        f"with a timeout of {_EXPIRY_S:.0f} s an open transaction was aborted after {took_s:.1f} s, its producer's commit "
        f"{_verdict(error)}, and a committed reader saw {_list(found)}"
    )
    return Outcome(error is not None and found == ["behind", "last"], seen)


def _join(clients: Clients, joining: Consumer, *others: Consumer) -> None:
    """Let one more consumer join and get a partition, which gives the others a new generation."""
    before = [membership_of(other) for other in others]
    joining.subscribe([clients.topic])

    def done() -> bool:
        changed = all(membership_of(other) != old for other, old in zip(others, before, strict=True))
        return changed and all(consumer.assignment() for consumer in (joining, *others))

    _wait(clients, done, [joining, *others])


def _wait(clients: Clients, done: Callable[[], bool], consumers: Sequence[Consumer]) -> None:
    if not clients.wait(done, _REBALANCE_S, consumers):
        raise BrokerError(f"a rebalance was not over after {_REBALANCE_S:.0f} s")


def _send(clients: Clients, offset: int, membership: bytes) -> str | None:
    """Commit an offset in a transaction; returns the name of the error if it was refused."""
    with clients.producer() as producer:
        return refusal(lambda: clients.write_and_commit(producer, offset=offset, membership=membership))


def _must_be_taken(clients: Clients, member: Consumer, offset: int) -> None:
    """Negative control: without it, a broker that refuses all offsets would seem to keep the promise."""
    error: str | None = None
    for _attempt in range(_ATTEMPTS):
        error = _send(clients, offset, membership_of(member))
        if error is None:
            return
        clients.wait(lambda: False, 1.0, [member])
    raise BrokerError(f"offsets of a member of the current generation were refused with {error}")


def _answer_within(clients: Clients, consumer: Consumer, timeout_s: float) -> int | None:
    try:
        return clients.committed_offset(consumer, timeout_s).offset
    except KafkaException as exception:
        if exception.args[0].code() in _UNANSWERED:
            return None
        raise


def _verdict(error: str | None) -> str:
    return f"was refused with {error}" if error else "was accepted"


def _list(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values) or "nothing"


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. `claim` states it in one sentence, `otherwise` says what happens if it does not hold."""

    name: str
    claim: str
    otherwise: str
    trial: Callable[[Clients], Outcome]


PROMISES: tuple[Promise, ...] = (
    Promise(
        "commit and abort",
        "A reader of committed records sees every record of a committed transaction and none of an aborted one, and passes "
        "no open one, not even to committed records behind it.",
        "Readers would see outputs of work that was undone and done again, or out of order: duplicates.",
        visibility,
    ),
    Promise(
        "fencing by transactional id",
        "A producer that starts fences the one before it with the same transactional id, whose open transaction is aborted.",
        "A worker that was paused or late could still commit what its successor does again: duplicates.",
        fencing_by_id,
    ),
    Promise(
        "fencing by generation",
        "Offsets sent in a transaction by a member of an older generation, or one that left its group, are refused.",
        "A worker whose partitions were taken away could still commit what their new owner does again: duplicates.",
        fencing_by_generation,
    ),
    Promise(
        "offsets in the transaction",
        "Offsets sent in a transaction are committed with it, with their text and leader epoch, and who asks for them "
        "meanwhile waits for its end (KIP-447).",
        "Offsets and outputs could part, or a new owner begin at an offset that is about to be overtaken: lost records or "
        "duplicates. Without the text a worker cannot see how often a record was tried.",
        offsets_in_the_transaction,
    ),
    Promise(
        "expiry by timeout",
        "A transaction that stays open beyond its timeout is aborted by the broker, its producer fenced, and readers go on.",
        "A worker that dies in a transaction would stop every reader of its output partitions for good.",
        expiry,
    ),
)
