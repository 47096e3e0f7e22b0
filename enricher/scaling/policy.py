"""How many workers it takes. Pure: no clock, no I/O, no memory; the same load always gives the same number.

    wanted   = even(keep up + catch up), at least 1 while there is work, at most one per partition
    keep up  = arriving / (share * per worker)        so many that what comes keeps them busy for `share` of their time
    catch up = overdue / (catch_up_s * per worker)    so many more that what is overdue is gone in time
    overdue  = waiting * (1 - comfortable / age)      of what waits, the part that is older than `comfortable`
    even(x)  = the fewest workers of whom none has more partitions than x workers' share, or 18 % above it

`comfortable` is half the target age; below it nothing is overdue. `even` is there because a partition is read by one worker:
of 24 partitions the busiest of 13 workers has two, as many as each of 12, so those between 12 and 24 bring nothing.

Why not `workers * age / target`, which an autoscaler computes from a bare age: an age says nothing about how much there is
to do. One old record (a feed that sends its archive with the times of publication) would ask for every worker there is, an
age of nothing for none, though they are what keeps it at nothing; and while new workers load their model the age goes on
growing, so each look would multiply what was asked for by the look before. Here the age decides how much of the backlog
matters, and the speeds that were seen decide how many workers that takes. Work that is under way changes nothing about it.

Why not the lag alone: see deploy/scaling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_COMFORTABLE = 0.5
"""Of the target age: below it nothing is overdue, so a target is not only noticed when it is missed."""
_UP_SHARE, _DOWN_SHARE = 0.8, 0.65
"""Workers are added when those there would be busy for more than the first, taken away when the rest would be for less than
the second. Between them the number stays: a load at the edge does not swing."""
_EVEN_SLACK = 0.85
"""The busiest worker may have so much more than its share: busy for 94 % of its time instead of 80 %."""
_MOST_GROWTH = 2.0
"""While nobody knows what a worker does, they are doubled at most, and doubled again only when those have joined."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What was asked for. Ages and times in seconds.

    `catch_up_s`: within how long what is overdue shall be gone. Not much shorter than a worker's start, which it cannot
    beat: it would only start more of them, late.
    """

    target_age_s: float = 60.0
    catch_up_s: float = 180.0
    max_workers: int | None = None
    """None: as many as there are partitions, which is never exceeded."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was seen. Records are counted in offsets."""

    waiting: int
    age_s: float
    """Of the oldest unprocessed record whose time is known; `inf` where none is."""
    waiting_partitions: int
    partitions: int
    workers: int
    """Members of the group now: those that start are none yet."""
    arriving_per_s: float
    per_worker_per_s: float | None
    """What one worker that is never idle does; None while nobody knows."""


def is_active(load: Load) -> bool:
    """Whether there must be a worker at all: one record waits, or some came lately."""
    return load.waiting > 0 or load.arriving_per_s > 0


def wanted_workers(load: Load, rules: Rules) -> int:
    """How many workers there should be: 0 only where nothing waits and nothing comes."""
    if not is_active(load):
        return 0
    most = max(1, min(load.partitions, rules.max_workers or load.partitions))
    return max(1, min(most, _growing(load, rules) if load.per_worker_per_s is None else _computed(load, rules)))


def _computed(load: Load, rules: Rules) -> int:
    assert load.per_worker_per_s is not None
    catch_up = _catch_up(load, rules, load.per_worker_per_s)
    busy = load.arriving_per_s / load.per_worker_per_s
    fewest = _even(busy / _UP_SHARE + catch_up, load.partitions)
    most = max(fewest, math.ceil(busy / _DOWN_SHARE + catch_up))
    return _useful(min(max(load.workers, fewest), most), load.partitions)


def _even(workers: float, partitions: int) -> int:
    """The fewest whose busiest has no more partitions than a share of `workers`, or a little more."""
    share = partitions / max(_EVEN_SLACK * workers, 1.0)
    return math.ceil(partitions / max(1, math.floor(share)))


def _useful(workers: int, partitions: int) -> int:
    """The fewest whose busiest has as many partitions as that of `workers`."""
    return math.ceil(partitions / math.ceil(partitions / workers))


def _catch_up(load: Load, rules: Rules, per_worker_per_s: float) -> float:
    comfortable_s = _COMFORTABLE * rules.target_age_s
    if load.age_s <= comfortable_s:
        return 0.0
    overdue = load.waiting * (1 - comfortable_s / load.age_s)
    # A partition is read by one worker at a time: one that is stuck is not helped by a crowd.
    return min(overdue / (rules.catch_up_s * per_worker_per_s), float(load.waiting_partitions))


def _growing(load: Load, rules: Rules) -> int:
    """Nobody knows what a worker does: by the age alone, from what is there, and never down."""
    too_old = min(_MOST_GROWTH, max(1.0, load.age_s / rules.target_age_s))
    return math.ceil(max(1, load.workers) * too_old)
