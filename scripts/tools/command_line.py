"""Helpers of the command lines of `kafka`, `registry` and `cluster`."""

from __future__ import annotations

import sys
from collections.abc import Callable

NOT_RUNNING = 3
"""The exit code of `status`, as init scripts say it (LSB, "program is not running")."""


def remark(text: str) -> None:
    """Print a remark to standard error: standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def run(app: Callable[..., object], script: str, *expected: type[Exception]) -> None:
    """Run a command line; expected failures are printed as one sentence, with exit code 1."""
    try:
        app(prog_name=script)
    except expected as error:
        sys.exit(f"{script}: {error}")
