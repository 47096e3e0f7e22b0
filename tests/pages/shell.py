"""A shell that runs the commands of a page. Its `enricher` is forked from a process that has the package already."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from support.forked import Forked
from support.logs import new_log
from support.patience import PATIENCE_S
from test_docs import ROOT

STUB_ENRICHER = str(Path(__file__).parent / "stub_enricher.py")
PAGE_S = 1.75 * PATIENCE_S
"""For all commands of a page: within the limit of a test, with its setup."""
# A worker of a page goes on for ever; here it ends when it has caught up.
PRELUDE = f"""
enricher() {{
    local code
    case "$*" in run*|"index run"*) set -- "$@" --until-caught-up;; esac
    env -0 > environment
    printf '%s\\0' "$BASHPID" "$PWD" "$@" > request
    read -r code < answer
    return "$code"
}}
kafka-configs() {{ "{ROOT}/scripts/kafka" tool kafka-configs "$@"; }}
"""


def run_page(commands: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run commands in one shell in a folder; fails with their log at the first that does."""
    with _enricher(folder):
        run(["/bin/bash", "-eu"], f"{PRELUDE}set -x\n{commands}", folder, environment)


def run(arguments: Sequence[str], program: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a program that reads its text from standard input; fails with its log if it does, or does not end."""
    log = new_log("page")
    with log.open("ab") as file:
        started = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            started.communicate(program.encode(), timeout=PAGE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)  # with all that it started
    assert 0 == started.returncode, log.read_text("utf-8", errors="replace")[-3000:]


def run_program(program: str, folder: Path) -> None:
    """Run a program in Python in a folder; fails with its log if it fails, or does not end."""
    path, log = folder / "program.py", new_log("page")
    path.write_text(f"import os\nos.chdir({str(folder)!r})\n{program}", "utf-8")
    with Forked([str(path)], os.environ, log) as started:
        code = started.wait(PAGE_S)
    assert 0 == code, log.read_text("utf-8", errors="replace")[-3000:]


@contextmanager
def _enricher(folder: Path) -> Iterator[None]:
    """Answers the shell's requests: each is its process id, its folder and the arguments."""
    for name in ("request", "answer"):
        os.mkfifo(folder / name)
    server = Thread(target=_serve, args=[folder], daemon=True)
    server.start()
    try:
        yield
    finally:
        with suppress(OSError):  # nobody reads: a command still runs, because the shell was ended
            os.close(os.open(folder / "request", os.O_WRONLY | os.O_NONBLOCK))  # no request: the end


def _serve(folder: Path) -> None:
    while request := (folder / "request").read_bytes():
        pid, *arguments = request.decode().split("\0")[:-1]
        lines = (folder / "environment").read_bytes().decode().split("\0")[:-1]
        environment = dict(line.split("=", 1) for line in lines)
        stdin, stdout, stderr = (Path("/proc", pid, "fd", str(number)) for number in range(3))
        with Forked([STUB_ENRICHER, *arguments], environment, stderr, stdin=stdin, stdout=stdout) as program:
            code = program.wait(PAGE_S)
        (folder / "answer").write_text(f"{code if code >= 0 else 128 - code}\n", "utf-8")
