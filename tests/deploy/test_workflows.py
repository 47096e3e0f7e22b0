"""The hosted workflows, as far as they can be checked where they do not run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"


def test_zizmor_finds_nothing() -> None:
    """Injected text, rights that are too wide, credentials that stay, actions by a tag, which somebody could move.

    These are its strictest audits that need no network.
    """
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip("zizmor is not installed")
    command = [str(program), "--offline", "--no-progress", "--persona", "pedantic", str(WORKFLOWS.parent)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    """Unknown keys, expressions that do not hold, inputs that an action does not have."""
    command = ["actionlint", *map(str, sorted(WORKFLOWS.glob("*.yml")))]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
