"""Runs the project's commands as a user would, and ends them with the demonstration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools import enricher_command
from tools.waiting import stop


class Failed(Exception):
    """A command failed; its own output says why."""


def enricher(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one command to its end. Raises Failed."""
    process = enricher_command.start(*arguments, variables=environment)
    try:
        code = process.wait()
    except BaseException:
        stop(process)
        raise
    if code:
        message = f"'enricher {' '.join(arguments)}' ended with exit code {code}"
        raise Failed(message)
