"""`enricher run`: the worker between two Kafka topics, alone or as several processes under one parent."""

from enricher.commands.run.command import run
from enricher.commands.run.reporting import describe, progress_lines, repeated
from enricher.commands.run.signals import interrupted, stopped_by_signals

__all__ = ["describe", "interrupted", "progress_lines", "repeated", "run", "stopped_by_signals"]
