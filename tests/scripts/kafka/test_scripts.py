"""The shell scripts before set-up: help works, and a missing prerequisite is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
COMMANDS = sorted(each.name for each in SCRIPTS.iterdir() if each.is_file() and not each.suffix)

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="these are scripts for bash")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Copy the scripts into a repository where nothing is set up."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("environment.sh", *COMMANDS):
        shutil.copy2(SCRIPTS / name, scripts / name)
    return scripts


def run(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script from another folder with the given environment variables."""
    return subprocess.run(
        [str(script), *arguments],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_no_set_up(bare: Path, name: str) -> None:
    """`--help` explains the script at once and installs nothing."""
    asked = run(bare / name, "--help")
    assert asked.returncode == 0
    assert f"scripts/{name}" in asked.stdout
    assert not (bare.parent / ".venv").exists()


def test_unfit_python_is_refused_with_the_version_needed(bare: Path, tmp_path: Path) -> None:
    """A Python that is too old is named, with what is needed instead, before anything is written."""
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.1"\nexit 1\n')
    old.chmod(0o755)
    refused = run(bare / "test", PYTHON=str(old))
    assert refused.returncode == 1
    assert "3.11 or newer" in refused.stderr
    assert "Python 3.8.1" in refused.stderr
    assert not (bare.parent / ".venv").exists()


def test_python_without_venv_is_told_what_to_install(bare: Path, tmp_path: Path) -> None:
    """Debian splits venv from Python: the message names the modules before anything is written."""
    crippled = tmp_path / "crippled-python"
    crippled.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\nexit 0\n')
    crippled.chmod(0o755)
    refused = run(bare / "check", PYTHON=str(crippled))
    assert refused.returncode == 1
    assert "venv and ensurepip" in refused.stderr
    assert not (bare.parent / ".venv").exists()
