"""Runs the commands of `enricher` as a user would, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

COMMAND = (sys.executable, "-m", "enricher")
_LEAVE_S = 60.0


def start(
    *arguments: str, variables: Mapping[str, str], stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a command. `variables`: of its environment, besides ours."""
    environment = {**os.environ, **variables}
    return subprocess.Popen([*COMMAND, *arguments], env=environment, stdout=stdout, stderr=stderr)


@contextmanager
def running(
    *arguments: str, variables: Mapping[str, str], stderr: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Let a command run while in the context, then stop it gracefully. Raises SystemExit if its exit code is not 0."""
    process = start(*arguments, variables=variables, stderr=stderr)
    try:
        yield process
        process.terminate()
        if code := process.wait(_LEAVE_S):
            raise SystemExit(f"the worker ended with code {code}")
    finally:
        process.kill()
        process.wait()


def answer_of(
    *arguments: str, variables: Mapping[str, str], timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and catch what it prints. Raises subprocess.TimeoutExpired."""
    environment = {**os.environ, **variables}
    command = [*COMMAND, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
