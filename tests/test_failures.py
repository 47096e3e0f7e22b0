"""A test that hangs in C, or ends its process, is named, and the others run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HANGS = """
import ctypes

def test_hangs(): # as a mutex that is locked twice: no signal ends it
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)

def test_goes_on():
    pass
"""
DIES = """
import os
def test_one(): pass
def test_dies(): os._exit(1)
def test_last(): pass
"""


def run(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, with the plugins of this one that such a failure concerns."""
    (folder / "test_tiny.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir=.", *arguments]
    plugins = ["-p", "support.logs", "-p", "support.running", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *plugins, f"--basetemp={folder / 'base'}", "test_tiny.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_a_test_that_hangs_in_c_is_named_with_its_stack_and_the_others_run(tmp_path: Path) -> None:
    """No signal reaches it, so its process is ended."""
    ran = run(tmp_path, HANGS, "--numprocesses", "1", "-o", "timeout=1", "-o", "faulthandler_timeout=15", "-r", "fEp")
    assert 1 == ran.returncode, ran.stdout + ran.stderr
    assert "in test_hangs" in ran.stderr
    assert "worker 'gw0' crashed while running 'test_tiny.py::test_hangs'" in ran.stdout
    assert "PASSED test_tiny.py::test_goes_on" in ran.stdout


@pytest.mark.slow
def test_a_run_ends_after_one_of_its_processes_has_died(tmp_path: Path) -> None:
    """What that one had done and the test that killed it are not run again; all others are run once."""
    (tmp_path / "test_before.py").write_text("def test_before(): pass")
    arguments = ["--numprocesses", "1", "--dist", "loadfile", "-r", "fEp"]
    ran = run(tmp_path, DIES, *arguments, "test_before.py")
    assert 1 == ran.returncode, ran.stdout + ran.stderr
    assert "1 failed, 3 passed" in ran.stdout
    assert "worker 'gw0' crashed while running 'test_tiny.py::test_dies'" in ran.stdout
