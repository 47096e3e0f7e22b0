"""The promises of a broker on which exactly-once depends, and a trial of each, which says what it saw either way.

The trials assume only the protocol: what clients are told, and how long it may take. A trial's clients are configured
like the worker's, with their own partition, group and transactional ids. `scripts/tables` writes `PROMISES` into
`deploy/promises.md`; `transactions` decides what a failure means for the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from enricher.errors import BrokerError
from enricher.worker.kafka.errors import Complaint, new_client
from enricher.worker.kafka.metadata import without_errors
from enricher.worker.kafka.producers import short_lived_producer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline

CALL_S = 15.0
"""Timeout of one call of a client."""
OPEN_MS = 30_000
"""Timeout of transactions: long enough for a trial, and short if the process dies."""
_SESSION_MS = 10_000
_POLL_S = 0.05
METADATA = "enricher/1 topic-id=AAAAAAAAAAAAAAAAAAAAAQ attempts=2 alone=1 " + "x" * 160
"""A text like the metadata that a worker commits with an offset, with room for longer texts."""
LEADER_EPOCH = 0
_KEY = b"enricher-doctor"  # a cluster may refuse records without a key


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tells what was seen, and whether the promise holds; None if it could not be tried."""

    holds: bool | None
    seen: str


@dataclass
class Clients:
    """Creates clients and uses them. Raises the client's errors unmapped, and blocks for at most `CALL_S` unless told else.

    `topic` to `ids`: a trial's own partition, group, and prefix of transactional ids.
    """

    config: KafkaConfig
    topic: str
    number: int
    group: str
    ids: str
    complaint: Complaint = field(default_factory=Complaint)

    @contextmanager
    def producer(self, name: str = "first") -> Iterator[Producer]:
        """An initialised transactional producer. It fences the previous one of the same name. Raises our errors."""
        properties = self.config.producer() | {
            "transactional.id": f"{self.ids}-{name}",
            "transaction.timeout.ms": OPEN_MS,
            # The client refuses to wait for longer than the transaction lasts.
            "message.timeout.ms": OPEN_MS,
            "socket.timeout.ms": 10_000,
            # A deleted topic must not be created again.
            "allow.auto.create.topics": False,
        }
        with short_lived_producer(properties, self.complaint, CALL_S, metadata_timeout_s=CALL_S) as producer:
            yield producer

    @contextmanager
    def consumer(self, isolation: str = "read_committed") -> Iterator[Consumer]:
        """A consumer of the trial's group, which it joins only if it subscribes."""
        properties = self.config.consumer() | {
            "group.id": self.group,
            "session.timeout.ms": _SESSION_MS,
            "isolation.level": isolation,
            "allow.auto.create.topics": False,
        }
        with closing(new_client(Consumer, properties, self.complaint)) as consumer:
            yield consumer

    def partition(self, offset: int = -1001) -> TopicPartition:
        """The trial's partition, as the client's type."""
        return TopicPartition(self.topic, self.number, offset)

    def values(self, until: str, *, stay_s: float = 0) -> list[str]:
        """The partition's committed records up to this value, and those that come within `stay_s` after it."""
        found: list[str] = []
        with self.consumer() as consumer:
            consumer.assign([self.partition(0)])

            def read() -> bool:
                while message := consumer.poll(_POLL_S):
                    if not (error := message.error()):
                        found.append((message.value() or b"").decode(errors="replace"))
                    else:
                        _raise_if_lasting(error)  # reading needs no right on the group
                return until in found

            if self.wait(read, CALL_S) and stay_s:
                self.wait(lambda: not read(), stay_s)
        return found

    def write(self, producer: Producer, *values: str) -> None:
        """Write records in the open transaction, and wait for the acknowledgements."""
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            producer.produce(self.topic, value.encode(), _KEY, partition=self.number, on_delivery=note)
        unsent = producer.flush(CALL_S)
        if failed:
            raise KafkaException(failed[0])
        if unsent:
            raise BrokerError(f"a record was not acknowledged within {CALL_S:.0f} s")

    def write_and_commit(
        self, producer: Producer, *values: str, offset: int | None = None, membership: bytes | None = None
    ) -> None:
        """One whole transaction: records, an offset (see `send_offset`), or both."""
        producer.begin_transaction()
        self.write(producer, *values)
        if offset is not None:
            self.send_offset(producer, offset, membership)
        producer.commit_transaction(CALL_S)

    def send_offset(self, producer: Producer, offset: int, membership: bytes | None = None) -> None:
        """Send an offset of the trial's group in the open transaction; without `membership`, not as a member."""
        proof = self.no_member() if membership is None else membership
        sent = TopicPartition(self.topic, self.number, offset, METADATA, LEADER_EPOCH)
        producer.send_offsets_to_transaction([sent], proof, CALL_S)

    def no_member(self) -> bytes:
        """Group metadata of a consumer that has not joined, so that the broker checks no generation."""
        with self.consumer() as consumer:
            return membership_of(consumer)

    def committed_offset(self, consumer: Consumer, timeout_s: float = CALL_S) -> TopicPartition:
        """The committed offset of the trial's group. A `read_committed` consumer waits for open transactions."""
        [found] = without_errors(consumer.committed([self.partition()], timeout=timeout_s))
        return found

    def wait(self, done: Callable[[], bool], timeout_s: float, consumers: Sequence[Consumer] = ()) -> bool:
        """Poll the consumers in turn until `done`; False after `timeout_s`."""
        deadline = Deadline(timeout_s)
        while not done():
            if deadline.over:
                return False
            for consumer in consumers:
                if (message := consumer.poll(_POLL_S)) and (error := message.error()):
                    _raise_if_lasting(error, KafkaError.GROUP_AUTHORIZATION_FAILED)
        return True


def membership_of(consumer: Consumer) -> bytes:
    """The consumer's current group metadata, with member id and generation."""
    metadata: bytes = consumer.consumer_group_metadata()
    return metadata


def refusal(call: Callable[[], object]) -> str | None:
    """The name of the error with which `call` was refused; None if it was accepted.

    Raises errors that are neither, because another attempt may succeed: timeouts above all.
    """
    try:
        call()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.retriable():
            raise
        return error.name()
    return None


def _raise_if_lasting(error: KafkaError, *refusals: int) -> None:
    """Raise fatal errors and errors about rights; the consumer retries after all others."""
    if error.fatal() or error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *refusals}:
        raise KafkaException(error)


_STAY_S = 1.0
"""How long a reader is watched for records that must not come."""
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
)
