"""Injects one fault after another: apply, wait, heal, then wait until every partition publishes again."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.chaos.scene import SESSION_S
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from random import Random

    from tools.chaos.faults import Fault
    from tools.chaos.scene import Scene

LIMIT_S = 20.0
"""After a fault has healed, every partition must publish again within this time."""
DEATH_LIMIT_S = SESSION_S + 5.0
"""The limit after a worker died without leaving its group: the group notices only when the session times out."""
_GIVE_UP_S = 90.0
_WHOLE_S = 30.0
SPIN_CORES = 0.8
"""A worker here needs about 0.1 core; one that uses this much is in a busy loop."""


@dataclass(slots=True)
class Outcome:
    """The result of one fault. Times are seconds since the timeline began."""

    number: int
    name: str
    about: str
    applied_s: float
    healed_s: float
    limit_s: float
    recovered_s: float | None
    """Seconds from healing until every input partition had published something new; None if it took too long."""
    whole_s: float | None
    """Seconds from healing until every worker had committed something; None if it took too long."""
    exits: dict[str, list[int]] = field(default_factory=dict)
    """Exit codes of the workers that ended during the fault, by name."""
    busiest_cores: float = 0.0
    """CPU cores used by the busiest worker, from the fault to the recovery."""
    unexpected: dict[str, list[int]] = field(default_factory=dict)
    """The exit codes that this kind of fault does not explain."""
    broken: Sequence[str] = ()
    """Demands of the fault on the group, while it lasted, that were not met."""

    @property
    def in_time(self) -> bool:
        return self.recovered_s is not None and self.recovered_s <= self.limit_s

    @property
    def spun(self) -> bool:
        return self.busiest_cores > SPIN_CORES


class Campaign:
    """Runs faults on a scene; `say` is called with each line of progress."""

    def __init__(self, scene: Scene, say: Callable[[str], None] | None = None) -> None:
        self._scene = scene
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self.outcomes: list[Outcome] = []

    def run(self, faults: Iterator[tuple[type[Fault], Random]], over: Callable[[], bool]) -> list[Outcome]:
        """Run faults until `over()` is true; the fault in progress is finished first."""
        self.wait_until_whole()
        for kind, chosen in faults:
            if over():
                break
            if kind.possible(self._scene):
                self.outcomes.append(self.run_one(kind(self._scene, chosen)))
        return self.outcomes

    def run_one(self, fault: Fault) -> Outcome:
        """Run one fault, from its injection until the group publishes again."""
        began_s = time.monotonic()
        cpu = self._cpu_s()
        fault.apply()
        time.sleep(fault.lasts_s)
        fault.heal()
        healed_s = time.monotonic()
        recovered_s = self._wait_until_moving()
        whole_s = self.wait_until_whole()
        exits = self._exits_since(began_s)
        outcome = Outcome(
            len(self.outcomes) + 1,
            fault.name,
            fault.about,
            began_s - self._scene.timeline.began_s,
            healed_s - self._scene.timeline.began_s,
            DEATH_LIMIT_S if fault.silent_death else LIMIT_S,
            recovered_s,
            None if whole_s is None else whole_s - healed_s,
            exits,
            self._busiest(cpu, time.monotonic() - began_s),
            _unexpected_exits(exits, fault.exit_codes),
            fault.broken,
        )
        self._tell(outcome)
        return outcome

    def wait_until_whole(self) -> float | None:
        """Wait until every worker has committed once more; returns that time (monotonic), or None on timeout."""
        return time.monotonic() if self._scene.wait_until_whole(_WHOLE_S) else None

    def _wait_until_moving(self) -> float | None:
        moving = self._scene.timeline.moving_from_now()
        wait_until(lambda: len(moving.first_s) >= self._scene.partitions, _GIVE_UP_S, 0.05)
        if len(moving.first_s) < self._scene.partitions:
            return None
        return max(moving.first_s.values()) - moving.since_s

    def _exits_since(self, began_s: float) -> dict[str, list[int]]:
        exits: dict[str, list[int]] = {}
        for end in self._scene.crew.exits_since(began_s):
            exits.setdefault(end.name, []).append(end.code)
        return exits

    def _cpu_s(self) -> dict[int, float]:
        return {slot.pid: slot.cpu_s for slot in self._scene.crew.slots.values() if slot.pid}

    def _busiest(self, before: dict[int, float], seconds: float) -> float:
        """CPU cores used by the busiest of the processes that ran all the time."""
        now = self._cpu_s()
        return max([(now[pid] - cpu_s) / seconds for pid, cpu_s in before.items() if pid in now], default=0.0)

    def _tell(self, outcome: Outcome) -> None:
        timeline = self._scene.timeline
        recovered = "NOT" if outcome.recovered_s is None else f"{outcome.recovered_s:.1f} s"
        late = "" if outcome.in_time else f" (limit {outcome.limit_s:.0f} s)"
        surprise = f", UNEXPECTED {outcome.unexpected}" if outcome.unexpected else ""
        surprise += "".join(f", BROKEN: {each}" for each in outcome.broken)
        self._say(
            f"{outcome.healed_s:6.0f} s  {outcome.number:3d}  {outcome.name}: {outcome.about}; "
            f"publishes again: {recovered}{late}; exits {outcome.exits or 'none'}{surprise}; {timeline.total} published"
        )


def _unexpected_exits(exits: Mapping[str, Sequence[int]], allowed: Container[int]) -> dict[str, list[int]]:
    found = {name: [code for code in codes if code not in allowed] for name, codes in exits.items()}
    return {name: codes for name, codes in found.items() if codes}
