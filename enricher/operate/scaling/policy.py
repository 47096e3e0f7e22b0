"""How many workers are needed. Pure and stateless: the same load always gives the same number.

    wanted   = even(keep up + catch up), at least 1 while there is work, at most one per partition
    keep up  = arriving / (share * per worker)        workers that the arrivals keep busy for `share` of their time
    catch up = overdue / (catch_up_s * per worker)    additional workers, so that what is overdue is gone in time
    overdue  = waiting * (1 - comfortable / age)      the part of the waiting records that is older than `comfortable`
    even(x)  = the fewest workers of which none has more partitions than the share of x workers, or 18 % more

`comfortable` is half the target age; below it nothing is overdue. `even` accounts for a partition being read by one worker:
with 24 partitions and 13 workers the busiest has two, like each of 12, so numbers between 12 and 24 gain nothing.

Why not `workers * age / target`, which an autoscaler computes from an age alone: an age does not say how much work there is.
One old record (a feed that sends its archive with the original timestamps) would ask for all workers; an age of 0 would ask
for none, although the workers keep it at 0; and while new workers load their model the age keeps growing, so each look
would multiply the number of the one before. Here the age decides how much of the backlog matters, and the observed speeds
decide how many workers that takes. Records in process do not change it.

Why not the lag alone: see deploy/scaling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_COMFORTABLE = 0.5
"""Fraction of the target age below which nothing is overdue; scaling begins before the target is missed."""
_UP_SHARE, _DOWN_SHARE = 0.8, 0.65
"""Workers are added if they would be busy for more than the first share of their time, and removed if the remaining ones
would be busy for less than the second. In between the number stays, so a load at the edge does not make it oscillate."""
_EVEN_SLACK = 0.85
"""The busiest worker may have that much more than its share: busy for 94 % of its time instead of 80 %."""
_MOST_GROWTH = 2.0
"""While a worker's speed is unknown, the number is at most doubled, and doubled again only when those have joined."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits and times that the operator asked for.

    `catch_up_s`: the time within which overdue records are to be processed. Much less than a worker's start-up time only
    starts more workers, too late.
    """

    target_age_s: float = 60.0
    catch_up_s: float = 180.0
    max_workers: int | None = None
    """The most workers that are asked for; None for one per partition, which is never exceeded."""


@dataclass(frozen=True, slots=True)
class Load:
    """One observation. Records are counted in offsets."""

    waiting: int
    age_s: float
    """Age of the oldest unprocessed record with a timestamp; `inf` if none has one."""
    waiting_partitions: int
    partitions: int
    workers: int
    """Members of the group now; workers that are starting do not count yet."""
    arriving_per_s: float
    per_worker_per_s: float | None
    """Speed of one worker that is never idle; None while unknown."""


def is_active(load: Load) -> bool:
    """Whether at least one worker is needed: a record waits, or some arrived lately."""
    return load.waiting > 0 or load.arriving_per_s > 0


def wanted_workers(load: Load, rules: Rules) -> int:
    """How many workers there should be; 0 only if nothing waits and nothing arrives."""
    if not is_active(load):
        return 0
    most = max(1, min(load.partitions, rules.max_workers or load.partitions))
    return max(1, min(most, _growing(load, rules) if load.per_worker_per_s is None else _compute(load, rules)))


def _compute(load: Load, rules: Rules) -> int:
    assert load.per_worker_per_s is not None
    catch_up = _catch_up(load, rules, load.per_worker_per_s)
    busy = load.arriving_per_s / load.per_worker_per_s
    fewest = _even(busy / _UP_SHARE + catch_up, load.partitions)
    most = max(fewest, math.ceil(busy / _DOWN_SHARE + catch_up))
    return _useful(min(max(load.workers, fewest), most), load.partitions)


def _even(workers: float, partitions: int) -> int:
    """The fewest workers of which the busiest has no more partitions than a share of `workers`, or a little more."""
    share = partitions / max(_EVEN_SLACK * workers, 1.0)
    return math.ceil(partitions / max(1, math.floor(share)))


def _useful(workers: int, partitions: int) -> int:
    """The fewest workers of which the busiest has as many partitions as the busiest of `workers`."""
    return math.ceil(partitions / math.ceil(partitions / workers))


def _catch_up(load: Load, rules: Rules, per_worker_per_s: float) -> float:
    comfortable_s = _COMFORTABLE * rules.target_age_s
    if load.age_s <= comfortable_s:
        return 0.0
    overdue = load.waiting * (1 - comfortable_s / load.age_s)
    # A partition is read by one worker at a time, so more workers do not help a partition that is stuck.
    return min(overdue / (rules.catch_up_s * per_worker_per_s), float(load.waiting_partitions))


def _growing(load: Load, rules: Rules) -> int:
    """The number of workers by the age alone, while a worker's speed is unknown; never fewer than now."""
    too_old = min(_MOST_GROWTH, max(1.0, load.age_s / rules.target_age_s))
    return math.ceil(max(1, load.workers) * too_old)
