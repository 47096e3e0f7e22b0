"""Tries the promises of a broker that exactly-once stands on, in topics that are created for it and deleted afterwards.

Assumes nothing of the broker but the protocol: what clients are told, how long it takes at most. Uses no topic and no group
of the worker. `promises` lists them; what a failure means for the operator is decided in `enricher.commands.doctor`.
"""

from enricher.kafka.trials.promise import Outcome, Promise, Result
from enricher.kafka.trials.promises import PROMISES
from enricher.kafka.trials.running import Trials

__all__ = ["PROMISES", "Outcome", "Promise", "Result", "Trials"]
