"""Runs the project's commands as a user would, and ends them with the demonstration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

_STOP_S = 20.0  # a worker that is asked to stop finishes what is on the device first


class Failed(Exception):
    """A command failed; its own output says why."""


def enricher(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one command to its end. Raises Failed."""
    command = [sys.executable, "-m", "enricher", *arguments]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if code:
        message = f"'enricher {' '.join(arguments)}' ended with exit code {code}"
        raise Failed(message)
