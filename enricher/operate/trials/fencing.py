"""Fencing of a producer by a newer one with its transactional id, and of a member by a newer generation."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer

from enricher.errors import BrokerError
from enricher.operate.trials.clients import CALL_S, Clients, Outcome, refusal

_REBALANCE_S = 25.0
"""Timeout of one rebalance. A broker waits 3 s for a group's first members, and heartbeats tell members about it."""
_ATTEMPTS = 5
"""The number of attempts for offsets that must be accepted: a rebalance that is still in progress is a valid reason to
refuse them."""


def by_transactional_id(clients: Clients) -> Outcome:
    """Open a transaction, start a second producer of the same id, and let both commit."""
    with clients.producer() as old, clients.reader() as reader:
        old.begin_transaction()
        clients.write(old, "old")
        with clients.producer() as new:
            clients.write_and_commit(new, "new")
            error = refusal(lambda: old.commit_transaction(CALL_S))
            clients.write_and_commit(new, "last")
        reader.read_until("last")
    first = f"was refused with {error}" if error else "was accepted"
    seen = f"the first producer's commit {first}, and a committed reader saw {', '.join(reader.values)}"
    return Outcome(error is not None and reader.values == ["new", "last"], seen)


def by_generation(clients: Clients) -> Outcome:
    """Send offsets as a current member, as a member of an older generation, and as one that has left its group."""
    with clients.consumer() as staying:
        with clients.consumer() as leaving:
            _join(clients, leaving)
            _must_be_taken(clients, leaving, 1)
            older = clients.membership(leaving)
            _join(clients, staying, leaving)
            of_older = _send(clients, 2, older)
            gone, before = clients.membership(leaving), clients.membership(staying)
        # Closing it left the group. The other member takes over its partitions.
        _wait(clients, lambda: clients.membership(staying) != before, [staying])
        of_gone = _send(clients, 3, gone)
        offset = clients.committed_offset(staying).offset
        _must_be_taken(clients, staying, 4)
    verdicts = [f"refused with {error}" if error else "accepted" for error in (of_older, of_gone)]
    seen = (
        f"offsets of a member were accepted, those of an older generation {verdicts[0]}, those of a member that left "
        f"{verdicts[1]}; committed was 1 before and {offset} after"
    )
    return Outcome(bool(of_older and of_gone) and offset == 1, seen)


def _join(clients: Clients, joining: Consumer, *others: Consumer) -> None:
    """Let one more consumer join and get a partition, which gives the others a new generation."""
    before = [clients.membership(other) for other in others]
    joining.subscribe([clients.topic])

    def done() -> bool:
        changed = all(clients.membership(other) != old for other, old in zip(others, before, strict=True))
        return changed and all(consumer.assignment() for consumer in (joining, *others))

    _wait(clients, done, [joining, *others])


def _wait(clients: Clients, done: Callable[[], bool], consumers: list[Consumer]) -> None:
    if not clients.wait(done, _REBALANCE_S, consumers):
        message = f"a rebalance was not over after {_REBALANCE_S:.0f} s"
        raise BrokerError(message)


def _send(clients: Clients, offset: int, membership: bytes) -> str | None:
    """Commit an offset in a transaction; returns the name of the error if it was refused."""
    with clients.producer() as producer:
        return refusal(lambda: clients.write_and_commit(producer, offset=offset, membership=membership))


def _must_be_taken(clients: Clients, member: Consumer, offset: int) -> None:
    """Negative control: without it, a broker that refuses all offsets would seem to keep the promise."""
    error: str | None = None
    for _attempt in range(_ATTEMPTS):
        error = _send(clients, offset, clients.membership(member))
        if error is None:
            return
        clients.wait(lambda: False, 1.0, [member])
    message = f"offsets of a member of the current generation were refused with {error}"
    raise BrokerError(message)
