"""The list of promises: names for the tables, and one sentence each for people. `deploy/brokers.md` is tested against it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from enricher.operate.trials import fencing, offsets, visibility
from enricher.operate.trials.clients import Clients, Outcome


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. `claim` states it in one sentence, `otherwise` says what happens if it does not hold.

    `needed`: exactly-once depends on it. Without the others the worker only knows less.
    """

    name: str
    claim: str
    otherwise: str
    trial: Callable[[Clients], Outcome]
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """A promise that was tried."""

    promise: Promise
    outcome: Outcome
    took_s: float


PROMISES: tuple[Promise, ...] = (
    Promise(
        "commit and abort",
        "A reader of committed records sees every record of a committed transaction and none of an aborted one.",
        "Readers would see the outputs of work that was undone and done again: duplicates.",
        visibility.commit_and_abort,
    ),
    Promise(
        "fencing by transactional id",
        "A producer that starts fences the one before it with the same transactional id, whose open transaction is aborted.",
        "A worker that was paused or late could still commit what its successor does again: duplicates.",
        fencing.by_transactional_id,
    ),
    Promise(
        "fencing by generation",
        "Offsets sent in a transaction by a member of an older generation, or one that left its group, are refused.",
        "A worker whose partitions were taken away could still commit what their new owner does again: duplicates.",
        fencing.by_generation,
    ),
    Promise(
        "offsets in the transaction",
        "Offsets sent in a transaction are committed with it: not visible before the commit, gone after an abort.",
        "Offsets and outputs could part: lost records or duplicates after a crash.",
        offsets.in_the_transaction,
    ),
    Promise(
        "stable offsets",
        "Who asks for a committed offset waits while a transaction that has sent one is open (KIP-447).",
        "A new owner could begin at an offset that is about to be overtaken: duplicates after a rebalance.",
        offsets.stable_fetch,
    ),
    Promise(
        "last stable offset",
        "A reader of committed records does not pass an open transaction, not even to committed records behind it.",
        "Readers could see outputs whose transaction is aborted later, or out of order.",
        visibility.last_stable_offset,
    ),
    Promise(
        "expiry by timeout",
        "A transaction that stays open beyond its timeout is aborted by the broker, its producer fenced, and readers go on.",
        "A worker that dies in a transaction would stop every reader of its output partitions for good.",
        visibility.expiry,
    ),
    Promise(
        "text of a committed offset",
        "The text and the leader epoch that are committed with an offset come back with it.",
        "Exactly-once holds without it, but a worker cannot see which topic an offset belongs to, nor how often it was "
        "tried.",
        offsets.metadata,
        needed=False,
    ),
)

if __name__ == "__main__":
    rows = (f"| {each.name} | {each.claim} |\n" for each in PROMISES)
    sys.stdout.write("| promise | in one sentence |\n|---|---|\n" + "".join(rows))
