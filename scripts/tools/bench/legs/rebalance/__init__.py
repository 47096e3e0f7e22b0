"""The leg `rebalance`: how long partitions stand still when a worker joins and when one leaves, and what that time is.

Headlines arrive steadily while a worker joins a running group and leaves it again (as on SIGTERM), several times. The model
is a stub that waits as for a GPU. All else is real, and every worker is a process.
"""

from __future__ import annotations

from contextlib import ExitStack

from tools.bench.bench import Bench
from tools.bench.legs.rebalance.joining import join_and_leave
from tools.bench.legs.rebalance.report import outcome
from tools.bench.legs.scale.crew import Crew
from tools.bench.outcome import Outcome

ABOUT = (
    "A worker joins and leaves a running group at 200 headlines a second, in eight partitions. Broker, workers, publisher "
    "and reader share the machine's cores. Only the model is a stub."
)
RUNNING = (1, 3)
"""Workers before another one joins. Of three, one keeps all of its partitions."""


def measure(bench: Bench) -> Outcome:
    """Run the leg: about five minutes."""
    changes = {}
    for running in RUNNING:
        with ExitStack() as closing:
            bench.say(f"{running} running")
            crew = Crew(bench, closing, running, module="tools.bench.timed_worker")
            changes[running] = join_and_leave(bench, crew)
    return outcome(changes)
