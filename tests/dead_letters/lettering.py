"""Dead letters without a worker: made by its encoder, written by a plain producer, and read by a plain consumer."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commands.cli_runner import run
from confluent_kafka import Message
from kafka.harness import Sent, header_list, publish, transaction
from support.made_again import topic_id
from support.reading import read_all
from support.records import encoder_of, finished
from support.topics import Topics

from enricher.operate.dead_letters.letters import REDRIVE_COUNT, REDRIVEN_LETTER
from enricher.worker.records import DeadLetter, Partition, RawRecord, Unreadable

Place = tuple[int, int]
NOW_S = time.time()


@dataclass(frozen=True, slots=True)
class Made:
    """A dead letter to write: where its input is, what that is, and why it failed. `topic`: another input topic."""

    place: Place
    sent: Sent
    stage: str = "decode"
    error_type: str = "InvalidArticle"
    age_s: float = 0.0
    topic: str = ""
    topic_id: str | None = None
    unreadable: Unreadable | None = None
    message: str = "not JSON"


def die(
    topics: Topics,
    made: Iterable[Made],
    *,
    max_bytes: int = 16_000_000,
    per_transaction: int = 100,
    partition: Callable[[Made], int] = lambda each: each.place[0],
) -> None:
    """Write dead letters as a worker does: in transactions, each in the partition with its input's number."""
    now_id = topic_id(topics.bootstrap_servers, topics.input)
    waiting = list(made)
    while waiting:
        now, waiting = waiting[:per_transaction], waiting[per_transaction:]
        with transaction(topics.bootstrap_servers, f"{topics.group}/letters") as producer:
            for each in now:
                number, offset = each.place
                source = Partition(each.topic or topics.input, number)
                raw = RawRecord(
                    source,
                    offset,
                    each.sent.key,
                    each.sent.value,
                    tuple(each.sent.headers),
                    topic_id=each.topic_id or now_id,
                    unreadable=each.unreadable,
                )
                letter = DeadLetter(each.stage, each.error_type, each.message)  # type: ignore[arg-type]  # four texts
                encoder = encoder_of(max_dead_letter_bytes=max_bytes, clock=lambda: NOW_S - each.age_s)  # noqa: B023  at once
                message = encoder.outgoing(finished(raw, letter))
                producer.produce(
                    topics.dead_letters, message.value, message.key, partition(each), headers=list(message.headers)
                )


def publish_and_die(topics: Topics, inputs: Sequence[Sent], **changes: Any) -> dict[Place, Sent]:  # noqa: ANN401  of `Made`
    """Publish inputs, and write a dead letter for each; returns their places in the input."""
    places = publish(topics.bootstrap_servers, topics.input, inputs)
    die(topics, [Made(place, sent, **changes) for place, sent in sorted(places.items())])
    return places


def redrive(topics: Topics, *options: str) -> dict[str, int]:
    """The counts of `redrive`, without those that are 0 and what an earlier run has sent; it must succeed."""
    result = run("dead-letters", "redrive", "--json", *options, env=topics.environment)
    assert result.exit_code == 0, result.output + str(result.exception)
    counts: Mapping[str, int] = json.loads(result.stdout)
    return {name: count for name, count in counts.items() if count and name != "sent_before"}


Fingerprint = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Partition, key, value, and headers."""


def redriven(topics: Topics, places: Mapping[Place, Sent]) -> Counter[Fingerprint]:
    """The records of the input topic that were not published there by the test, without the names of their letters."""
    found = [m for m in read_all(topics.bootstrap_servers, topics.input) if place_of(m) not in places]
    assert all([name for name, _ in header_list(m)].count(REDRIVEN_LETTER) == 1 for m in found)
    return Counter((m.partition() or 0, m.key(), m.value(), _without_name(m)) for m in found)


def _without_name(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(header for header in header_list(message) if header[0] != REDRIVEN_LETTER)


def expected(letters: Mapping[Place, Sent]) -> Counter[Fingerprint]:
    """The records that must be in the input once these dead letters were redriven once, each exactly once."""
    return Counter(
        (number, sent.key, sent.value, (*sent.headers, (REDRIVE_COUNT, b"1"))) for (number, _), sent in letters.items()
    )


def place_of(message: Message) -> Place:
    """Its partition and offset."""
    return message.partition() or 0, message.offset() or 0


def with_headers(sent: Sent, *headers: tuple[str, bytes | None]) -> Sent:
    """The same input with more headers."""
    return replace(sent, headers=(*sent.headers, *headers))
