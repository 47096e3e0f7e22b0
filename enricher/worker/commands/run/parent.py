"""`enricher run --processes N`: the parent, which starts this command N times as child processes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enricher.worker.commands.run.share import Share
from enricher.worker.processes import RestartLimits, SilenceLimits, Supervisor
from enricher.worker.runtime.watchdog import TIMER_MARGIN_S
from enricher.worker.settings import Settings

_SILENT_S = 10.0
"""After how much silence a process is not ready: many times what a busy machine delays a report that is due each second."""
_KILL_MARGIN_S = 2 * TIMER_MARGIN_S
"""The parent kills a process this long after its bound: by then the process's own timer has shown the stacks of its threads,
unless the process is frozen."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command line that the parent passes on to its children."""

    until_caught_up: bool
    summary: Path | None
    report_every_s: float


def supervisor(settings: Settings, count: int, options: RunOptions) -> Supervisor:
    """The parent of `count` worker processes; its `run` starts them."""
    worker = settings.worker
    restarts = RestartLimits(worker.max_restarts_in_a_row, worker.restart_pause_s, worker.restart_stable_s)
    silence = SilenceLimits(_SILENT_S, worker.stall_timeout_s + _KILL_MARGIN_S, worker.start_timeout_s + _KILL_MARGIN_S)
    # A drain ends with a transaction, which may take up to the transaction timeout.
    grace_s = worker.drain_timeout_s + settings.kafka.transaction_timeout_s
    return Supervisor(
        lambda index: child_command(Share(index, count), options),
        count,
        restarts,
        silence,
        grace_s=grace_s,
        until_done=options.until_caught_up,
    )


def child_command(share: Share, options: RunOptions) -> Sequence[str]:
    """The command line of one child."""
    return [
        *(sys.executable, "-m", "enricher", *_verbosity_options()),
        *("run", "--process", str(share), "--report-every-s", str(options.report_every_s)),
        *(["--until-caught-up"] if options.until_caught_up else []),
        *(["--summary", str(child_summary(options.summary, share.index))] if options.summary else []),
    ]


def child_summary(summary: Path, index: int) -> Path:
    """The file for one child's counts: `counts.json` becomes `counts-0.json`."""
    return summary.with_name(f"{summary.stem}-{index}{summary.suffix}")


def _verbosity_options() -> list[str]:
    level = logging.getLogger().level
    return ["--verbose"] if level <= logging.DEBUG else ["--quiet"] if level >= logging.WARNING else []
