"""Injects one fault: apply, wait, heal, then wait until every partition publishes again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.chaos.scene import SESSION_S
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.chaos.faults import Fault
    from tools.chaos.scene import Scene

LIMIT_S = 20.0
"""After a fault has healed, every partition must publish again within this time."""
DEATH_LIMIT_S = SESSION_S + 5.0
"""The limit after a worker died without leaving its group: the group notices only when the session times out."""
_GIVE_UP_S = 90.0
SPIN_CORES = 0.8
"""A worker here needs about 0.1 core; one that uses this much is in a busy loop."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one fault. Times are seconds since the timeline began."""

    name: str
    about: str
    applied_s: float
    healed_s: float
    recovered_s: float | None
    """Seconds from healing until every input partition had published something new; None if it took too long."""
    exits: Mapping[str, Sequence[int]]
    """Exit codes of the workers that ended during the fault, by name."""
    wrong: Sequence[str]
    """Exit codes that this kind of fault does not explain, and its demands on the group that were not met."""
    slow: Sequence[str]
    """A recovery over its limit, and a worker in a busy loop: on a machine that is too busy both mean nothing."""

    def __str__(self) -> str:
        recovered = "NOT" if self.recovered_s is None else f"{self.recovered_s:.1f} s"
        found = "".join(f", {each}" for each in (*self.wrong, *self.slow))
        return f"{self.name}: {self.about}; publishes again: {recovered}; exits {self.exits or 'none'}{found}"


def inject(scene: Scene, fault: Fault) -> Outcome:
    """Run one fault, from its injection until the group publishes again and every worker commits."""
    began_s, timeline = time.monotonic(), scene.timeline
    cpu_s = _cpu_s(scene)
    fault.apply()
    time.sleep(fault.lasts_s)
    fault.heal()
    healed_s = time.monotonic()
    recovered_s = _wait_until_moving(scene)
    scene.wait_until_whole()
    exits: dict[str, list[int]] = {}
    for end in scene.crew.exits_since(began_s):
        exits.setdefault(end.name, []).append(end.code)
    unexplained = [
        f"{name} ended with {code}" for name in exits for code in exits[name] if code not in fault.exit_codes
    ]
    slow, limit_s = [], DEATH_LIMIT_S if fault.silent_death else LIMIT_S
    if recovered_s is None or recovered_s > limit_s:
        slow.append(f"over the limit of {limit_s:.0f} s")
    if (cores := _busiest(scene, cpu_s, time.monotonic() - began_s)) > SPIN_CORES:
        slow.append(f"a worker used {cores:.1f} cores")
    times_s = (began_s - timeline.began_s, healed_s - timeline.began_s, recovered_s)
    return Outcome(fault.name, fault.about, *times_s, exits, [*unexplained, *fault.broken], slow)


def _wait_until_moving(scene: Scene) -> float | None:
    moving = scene.timeline.moving_from_now()
    if not wait_until(lambda: len(moving.first_s) >= scene.partitions, _GIVE_UP_S, 0.05):
        return None
    return max(moving.first_s.values()) - moving.since_s


def _cpu_s(scene: Scene) -> dict[int, float]:
    return {slot.pid: slot.cpu_s for slot in scene.crew.slots.values() if slot.pid}


def _busiest(scene: Scene, before: Mapping[int, float], seconds: float) -> float:
    """CPU cores used by the busiest of the processes that ran all the time."""
    now = _cpu_s(scene)
    return max([(now[pid] - cpu_s) / seconds for pid, cpu_s in before.items() if pid in now], default=0.0)
