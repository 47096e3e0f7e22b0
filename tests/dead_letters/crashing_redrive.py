"""A redrive that dies by SIGKILL at a named point of its transactions.

    python tests/dead_letters/crashing_redrive.py POINT[:N] RECORDS [options of `enricher dead-letters redrive`]

RECORDS: how many a transaction has. With `blind-` before POINT it is a wrong redrive, the negative control of the tests: it
does not see which letters were sent before.
"""

from __future__ import annotations

import sys
from functools import partial

from kafka.crashing_worker import CrashPoint, dying_producer

from enricher import cli
from enricher.operate.dead_letters import command
from enricher.operate.dead_letters.letters import NewerRecords
from enricher.operate.dead_letters.sender import Sender

CRASHING_REDRIVE = __file__
BLIND = "blind-"


if __name__ == "__main__":
    text, records = sys.argv.pop(1), sys.argv.pop(1)
    producer = dying_producer(CrashPoint.parse(text.removeprefix(BLIND)))
    if text.startswith(BLIND):
        NewerRecords.has_letter = lambda *_: False  # type: ignore[method-assign]  # the negative control
    for name, made in (("Sender", partial(Sender, producer_class=producer)), ("MOST_RECORDS", int(records))):
        assert hasattr(command, name), "a redrive is made of other parts now"
        setattr(command, name, made)
    sys.argv[1:1] = ["dead-letters", "redrive"]
    cli.main()
