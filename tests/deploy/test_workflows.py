"""The hosted workflows, as far as they can be checked where they do not run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.offenders import assert_none

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
_PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def unpinned(text: str) -> Iterator[str]:
    """Lines with an action that is not named by the digest of a commit, with its version beside it."""
    for line in text.splitlines():
        if "uses:" in line and not _PINNED.search(line):
            yield line.strip()


def test_actions_are_pinned_by_digest() -> None:
    """A tag can be moved to other code by whoever owns it."""
    assert_none(f"{path.name}: {line}" for path in WORKFLOWS.iterdir() for line in unpinned(path.read_text("utf-8")))


def test_a_tag_is_not_a_digest() -> None:
    """The negative control."""
    text = f"- uses: actions/checkout@v4\n- uses: a/b@{'0' * 40}\n- uses: a/b@{'0' * 40} # v1.2.3\n"
    assert list(unpinned(text)) == ["- uses: actions/checkout@v4", f"- uses: a/b@{'0' * 40}"]


def test_zizmor_finds_nothing() -> None:
    """Injected text, rights that are too wide, credentials that stay: its strictest audits that need no network."""
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
