"""The report of a failed test shows what the processes have logged that it used, and where their logs are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.forked import Forked
from support.logs import LINES, written_since

TESTS = Path(__file__).parent
FAILS = """
import os, pytest, time
from support.logs import new_log
from tools.kafka.kept_folder import KeptFolder

@pytest.fixture(scope="session")
def ended_before(): # as a worker of another test
    log = new_log("worker")
    log.write_text("nothing of this")
    os.utime(log, (time.time() - 60,) * 2)

def test_fails(tmp_path, ended_before):
    broker = KeptFolder(None, "enricher-kafka-")
    folder = broker.open()
    (broker.logs / "node-1.log").write_text("the broker's last line")
    broker.close()
    assert not folder.exists()
    (tmp_path / "worker.log").write_text("".join(f"line {number} of the worker\\n" for number in range(100)))
    assert False
"""


def test_a_failure_shows_the_ends_of_the_logs_and_keeps_them(tmp_path: Path) -> None:
    """A worker's and a broker's, whose own folder is gone; nothing of those that had ended before."""
    (tmp_path / "test_tiny.py").write_text(FAILS)
    base = tmp_path / "base"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "support.logs",
        f"--basetemp={base}",
        "--rootdir=.",
        "test_tiny.py",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert 1 == ran.returncode, ran.stdout + ran.stderr
    assert f"line {100 - LINES} of the worker" in ran.stdout
    assert "line 99 of the worker" in ran.stdout
    assert f"line {99 - LINES} of the worker" not in ran.stdout
    assert "the broker's last line" in ran.stdout
    assert "nothing of this" not in ran.stdout
    [kept] = base.rglob("node-1.log")
    assert str(kept) in ran.stdout


@pytest.mark.slow
def test_a_worker_for_which_no_file_is_named_has_a_log_all_the_same(tmp_path: Path) -> None:
    """The log of a process that began with the test is one of those that its failure would show."""
    program = tmp_path / "program.py"
    program.write_text("import sys\nsys.stderr.write('the last words')\nsys.exit(3)\n")
    began_s = time.time() - 1
    assert 3 == Forked([str(program)], os.environ).wait()
    assert "the last words" in [path.read_text() for path in written_since(began_s)]
