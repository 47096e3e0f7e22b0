"""The list of promises: names for the tables, and one sentence each for people. `deploy/brokers.md` is tested against it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from enricher.operate.trials import trials
from enricher.operate.trials.clients import Clients, Outcome


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
        trials.visibility,
    ),
    Promise(
        "fencing by transactional id",
        "A producer that starts fences the one before it with the same transactional id, whose open transaction is aborted.",
        "A worker that was paused or late could still commit what its successor does again: duplicates.",
        trials.fencing_by_id,
    ),
    Promise(
        "fencing by generation",
        "Offsets sent in a transaction by a member of an older generation, or one that left its group, are refused.",
        "A worker whose partitions were taken away could still commit what their new owner does again: duplicates.",
        trials.fencing_by_generation,
    ),
    Promise(
        "offsets in the transaction",
        "Offsets sent in a transaction are committed with it, with their text and leader epoch, and who asks for them "
        "meanwhile waits for its end (KIP-447).",
        "Offsets and outputs could part, or a new owner begin at an offset that is about to be overtaken: lost records or "
        "duplicates. Without the text a worker cannot see how often a record was tried.",
        trials.offsets_in_the_transaction,
    ),
    Promise(
        "expiry by timeout",
        "A transaction that stays open beyond its timeout is aborted by the broker, its producer fenced, and readers go on.",
        "A worker that dies in a transaction would stop every reader of its output partitions for good.",
        trials.expiry,
    ),
)

if __name__ == "__main__":
    rows = (f"| {each.name} | {each.claim} |\n" for each in PROMISES)
    sys.stdout.write("| promise | in one sentence |\n|---|---|\n" + "".join(rows))
