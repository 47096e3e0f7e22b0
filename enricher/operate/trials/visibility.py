"""Readers of committed records see no aborted records, and none behind an open transaction."""

from __future__ import annotations

import time

from enricher.operate.trials.clients import CALL_S, Clients, Outcome, refusal

_STAY_S = 1.0
"""How long a reader at its end is watched for records that must not come."""
_EXPIRY_S = 5.0
"""`transaction.timeout.ms` of the transaction that is left open. With a shorter one a slow network would end it early."""
_SCAN_S = 30.0
"""How much later the broker may abort it. Kafka checks every 10 s."""


def commit_and_abort(clients: Clients) -> Outcome:
    """Commit, abort and commit again; the reader must get the first and the last record."""
    with clients.producer() as producer, clients.reader() as committed, clients.reader("read_uncommitted") as all_:
        clients.write_and_commit(producer, "committed")
        producer.begin_transaction()
        clients.write(producer, "aborted")
        producer.abort_transaction(CALL_S)
        clients.write_and_commit(producer, "last")
        committed.read_until("last")
        all_.read_until("last")
    seen = f"a committed reader saw {_list(committed.values)}, an uncommitted one {_list(all_.values)}"
    return Outcome(committed.values == ["committed", "last"], seen)


def last_stable_offset(clients: Clients) -> Outcome:
    """Leave a transaction open, commit another behind it, and read before and after the first is committed."""
    with (
        clients.producer("first") as first,
        clients.producer("second") as second,
        clients.reader() as committed,
        clients.reader("read_uncommitted") as all_,
    ):
        clients.write_and_commit(first, "before")
        first.begin_transaction()
        clients.write(first, "open")
        clients.write_and_commit(second, "behind")
        all_.read_until("behind")
        committed.read_to_end(and_for_s=_STAY_S)
        early, stable, high = list(committed.values), committed.end, all_.end
        first.commit_transaction(CALL_S)
        committed.read_until("behind")
    seen = (
        f"with a transaction open a committed reader saw {_list(early)}, last stable offset {stable} and end offset "
        f"{high}; after its commit {_list(committed.values)}"
    )
    return Outcome(early == ["before"] and stable < high and committed.values == ["before", "open", "behind"], seen)


def expiry(clients: Clients) -> Outcome:
    """Leave a transaction open for longer than its timeout, and wait for what was committed behind it."""
    with (
        clients.producer("abandoned", timeout_s=_EXPIRY_S) as abandoned,
        clients.producer("second") as second,
        clients.reader() as committed,
    ):
        began_s = time.monotonic()
        abandoned.begin_transaction()
        clients.write(abandoned, "abandoned")
        clients.write_and_commit(second, "behind")
        if not committed.read_until("behind", _EXPIRY_S + _SCAN_S):
            seen = f"a transaction with a timeout of {_EXPIRY_S:.0f} s was still open {_SCAN_S:.0f} s after that"
            return Outcome(holds=False, seen=seen)
        took_s = time.monotonic() - began_s
        error = refusal(lambda: abandoned.commit_transaction(CALL_S))
        clients.write_and_commit(second, "last")
        committed.read_until("last")
    verdict = f"was refused with {error}" if error else "was accepted"
    seen = (
        f"with a timeout of {_EXPIRY_S:.0f} s an open transaction was aborted after {took_s:.1f} s, its producer's commit "
        f"{verdict}, and a committed reader saw {_list(committed.values)}"
    )
    return Outcome(error is not None and committed.values == ["behind", "last"], seen)


def _list(values: list[str]) -> str:
    return ", ".join(f"'{value}'" for value in values) or "nothing"
