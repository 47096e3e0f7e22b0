"""`enricher run --processes N`: the parent, which starts this command N times as child processes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enricher.worker.commands.run.share import Share
from enricher.worker.processes import Processes
from enricher.worker.settings import Settings


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command line that the parent passes on to its children."""

    until_caught_up: bool
    summary: Path | None
    report_every_s: float


def worker_processes(settings: Settings, count: int, options: RunOptions) -> Processes:
    """The worker processes, `count` of them; their `run` starts them."""
    return Processes(
        [child_command(Share(index, count), options) for index in range(count)],
        # A drain ends with a transaction, which may take up to the transaction timeout.
        grace_s=settings.worker.drain_timeout_s + settings.kafka.transaction_timeout_s,
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
