"""When a worker is not alive: its loop, or the model under it, has made no progress though it should have.

Pure. The watchdog ends such a process at the full bound anyway; here it is half of it, so that Kubernetes writes the reason
into its events before. What waits for the broker counts only at its full bound: a restart would wait for the same broker,
and begin with loading the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from enricher.runtime.watchdog import Watched

TURN = "one turn of the loop"
"""The guard around what depends on this process alone; all others wait for the broker."""
SHARE = 0.5
"""Of a bound, for what does not wait for the broker."""


@dataclass(frozen=True, slots=True)
class Waits:
    """For how long what has work has given nothing back, when the loop last looked; `limit_s` is the bound of both."""

    engine_s: float
    tokenizer_s: float
    limit_s: float


def stuck(watched: Watched | None, waits: Waits) -> str | None:
    """Why the worker is not alive, in one line; None while it is."""
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
