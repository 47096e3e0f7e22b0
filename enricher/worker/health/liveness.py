"""The rule of the liveness probe: a worker is not alive if its loop, model or tokenizer makes no progress though it should.

The watchdog ends such a process at the full bound; the probe fails at half of it, so that Kubernetes records the reason
before the process is gone. Steps that wait for the broker fail the probe only at their full bound: a new process would wait
for the same broker, after loading the model again.
"""

from __future__ import annotations

from dataclasses import dataclass

from enricher.worker.runtime.watchdog import Watched

TURN = "one turn of the loop"
"""The name of the guard around work that depends on this process alone. All other guards wait for the broker."""
SHARE = 0.5
"""The share of the bound at which the probe fails, for work that does not wait for the broker."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long engine and tokenizer have had work without finishing any, as the loop last saw. `limit_s` bounds both."""

    engine_s: float
    tokenizer_s: float
    limit_s: float


def why_stuck(watched: Watched | None, waits: Waits) -> str | None:
    """Why only a new process can help, in one line; None if the worker makes progress, or may still make some."""
    if watched is not None:
        limit_s = watched.limit_s * (SHARE if watched.what == TURN else 1.0)
        if watched.since_s > limit_s:
            return f"no progress in '{watched.what}' for {watched.since_s:.0f} s, bound {limit_s:g} s"
    limit_s = waits.limit_s * SHARE
    if waits.engine_s > limit_s:
        return f"the model has finished no batch for {waits.engine_s:.0f} s, bound {limit_s:g} s"
    if waits.tokenizer_s > limit_s:
        return f"the tokenizer has finished nothing for {waits.tokenizer_s:.0f} s, bound {limit_s:g} s"
    return None
