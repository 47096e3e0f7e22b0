"""The registry goes away under load, and a worker starts while it is away: what must happen, watched from outside."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.fault_proxy import Fault

if TYPE_CHECKING:
    from support.fault_proxy import FaultProxy
    from support.mixed.stage import Stage

_TURN_S = 1.0
_CATCH_UP_S = 120.0
FRESH = "Avro, prefix, registered just before the outage"


@dataclass(slots=True)
class Outage:
    """What was seen. `ages_s`: seconds since the outage began, and the age of the oldest record then."""

    fault: Fault
    ages_s: list[tuple[float, float]] = field(default_factory=list)
    dead_letters: int = 0
    """While the registry was away."""
    waiting: int = 0
    """Inputs that were not committed when it came back."""
    recovered_s: float | None = None
    """From its return until everything was committed; None if it took too long."""

    @property
    def grew(self) -> bool:
        """Whether the age of the oldest record rose from the first look to the last."""
        return len(self.ages_s) > 1 and self.ages_s[-1][1] > self.ages_s[0][1]


def ride_out(stage: Stage, proxy: FaultProxy, fault: Fault, seconds: float, rate_per_s: float) -> Outage:
    """Publish for `seconds` while the registry is away, every fourth input with a schema that the worker has not met.

    A worker must be running. Returns when everything is committed after the registry's return, or too much time has gone.
    """
    stage.inputs.add(FRESH, stage.forms.fresh_avro(str(time.time_ns())))
    stage.inputs.prepare(FRESH)
    outage = Outage(fault)
    began_s, published = time.monotonic(), 0
    with ExitStack() as over:
        over.enter_context(proxy.fault(fault))
        while (now_s := time.monotonic() - began_s) < seconds:
            due = round(rate_per_s * (now_s + _TURN_S))
            stage.publisher.send(stage.inputs.next_with(FRESH, due - published))
            published = due
            outage.ages_s.append((now_s, stage.age_s()))
            print(
                f"{fault.name}: {now_s:3.0f} s, oldest record {outage.ages_s[-1][1]:.1f} s, backlog {stage.backlog()}"
            )
            time.sleep(max(0.0, _TURN_S - (time.monotonic() - began_s - now_s)))
        # A turn may take as long as the outage on a busy machine; this is never the only look.
        outage.ages_s.append((time.monotonic() - began_s, stage.age_s()))
        outage.waiting = stage.backlog()
        outage.dead_letters = stage.dead_letters()
    returned_s = time.monotonic()
    if stage.wait_until_done(_CATCH_UP_S):
        outage.recovered_s = time.monotonic() - returned_s
    return outage
