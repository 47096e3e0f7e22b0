"""Takes the time of one change apart, from the moments that its workers noted. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tools.bench.legs.rebalance.joining import Change
from tools.bench.moments import Moment

JOINING = {
    "heard": "a member hears of it (all go on)",
    "first": "first JoinGroup and SyncGroup, of all (all go on)",
    "publish": "old owner: last transaction",
    "second": "second JoinGroup and SyncGroup, of all",
    "start": "new owner: where it begins",
    "record": "new owner: first record",
}
LEAVING = {
    "stop": "the loop ends its turn",
    "drain": "device, last transaction",
    "close": "engine, tokenizer, producer close",
    "leave": "LeaveGroup",
    "heard": "the last of the others hears of it",
    "first": "JoinGroup and SyncGroup, of all",
    "start": "new owner: where it begins",
    "record": "new owner: first record",
}
"""The parts in their order. The first record comes when the next article does, which takes 0.04 s on average."""


def parts_of(change: Change) -> Mapping[str, float]:
    """Seconds of each part, as far as the moments are there: one ends where the next one begins."""
    moments = _joining(change) if change.kind == "joins" else _leaving(change)
    names = list(JOINING if change.kind == "joins" else LEAVING)
    known = [(name, at_s) for name, at_s in zip(["begin", *names], moments, strict=True) if at_s is not None]
    return {name: max(0.0, at_s - before_s) for (_, before_s), (name, at_s) in pairwise(known)}


def still_s(change: Change) -> float | None:
    """How long moved partitions were read by nobody: to the new owner's look-up from the old owner's callback.

    For a worker that leaves, from the end of its last turn. None if moments are missing.
    """
    parts = parts_of(change)
    still = [
        name for name in (JOINING if change.kind == "joins" else LEAVING) if change.kind != "joins" or name in _STILL
    ]
    return sum(parts[name] for name in still if name != "record") if parts.keys() >= set(still) else None


_STILL = ("publish", "second", "start", "record")


def _joining(change: Change) -> Sequence[float | None]:
    assigned = _last(change.own, "assigning", with_partitions=True)
    before_s = assigned.at_s if assigned else None
    revoked = [moment for moment in change.others if moment.what == "revoked" and moment.partitions]
    return [
        _at(_first(change.own, "joining")),
        _at(_first(change.others, "heard")),
        _at(_first(change.others, "revoking")),
        max((moment.at_s for moment in revoked), default=None),
        before_s,
        _at(_last(change.own, "assigned", with_partitions=True)),
        _at(_last(change.own, "record")),
    ]


def _leaving(change: Change) -> Sequence[float | None]:
    left = _at(_last(change.own, "left"))
    heard = [moment.at_s for moment in change.others if moment.what == "heard"]
    assigned = _first(change.others, "assigning", with_partitions=True)
    in_time = [at_s for at_s in heard if assigned is None or at_s <= assigned.at_s]
    return [
        change.began_s,
        _at(_last(change.own, "draining")),
        _at(_last(change.own, "drained")),
        _at(_last(change.own, "leaving")),
        left,
        max(in_time, default=None),
        _at(assigned),
        _at(_last(change.others, "assigned", with_partitions=True)),
        _at(_last(change.others, "record")),
    ]


def _first(moments: Sequence[Moment], what: str, *, with_partitions: bool = False) -> Moment | None:
    return next((each for each in moments if each.what == what and (each.partitions or not with_partitions)), None)


def _last(moments: Sequence[Moment], what: str, *, with_partitions: bool = False) -> Moment | None:
    return _first(moments[::-1], what, with_partitions=with_partitions)


def _at(moment: Moment | None) -> float | None:
    return moment.at_s if moment else None
