"""A redrive that dies by SIGKILL at a named point of its transactions.

    python tests/dead_letters/crashing_redrive.py POINT[:N] RECORDS [options of `enricher dead-letters redrive`]

RECORDS: how many a transaction has. With `apart-` before POINT it is a wrong redrive, the negative control of the tests: it
commits its offsets after its transaction instead of in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.crashing_worker import CrashPoint, dying_producer

from enricher import cli
from enricher.operate.dead_letters import redrive
from enricher.operate.dead_letters.sender import Sender

CRASHING_REDRIVE = __file__
POINTS = ("begun", "produced", "flushed", "offsets-sent", "committed")
APART = "apart-"


def apart_producer(point: CrashPoint) -> type[Producer]:
    """A producer with which offsets are no part of the transaction."""

    class ApartProducer(Producer):
        offsets: Sequence[TopicPartition] = ()

        def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], *_arguments: Any) -> None:  # noqa: ANN401  the client's own signature
            self.offsets = offsets

        def commit_transaction(self, *arguments: Any) -> None:  # noqa: ANN401  as above
            super().commit_transaction(*arguments)
            point.reached("committed")
            group = f"{os.environ['ENRICHER_KAFKA__GROUP_ID']}.redrive"
            servers = os.environ["ENRICHER_KAFKA__BOOTSTRAP_SERVERS"]
            consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
            consumer.commit(offsets=list(self.offsets), asynchronous=False)
            consumer.close()

    return ApartProducer


if __name__ == "__main__":
    text, records = sys.argv.pop(1), sys.argv.pop(1)
    crash = CrashPoint.parse(text.removeprefix(APART))
    producer = apart_producer(crash) if text.startswith(APART) else dying_producer(crash)
    for name, made in (("Sender", partial(Sender, producer_class=producer)), ("MOST_RECORDS", int(records))):
        assert hasattr(redrive, name), "a redrive is made of other parts now"
        setattr(redrive, name, made)
    sys.argv[1:1] = ["dead-letters", "redrive"]
    cli.main()
