"""The end of a test that looks at many files for what breaks a rule."""

from __future__ import annotations

from collections.abc import Iterable


def assert_none(offenders: Iterable[str]) -> None:
    """Fails with all of them, one in each line. pytest's own comparison of lists would name the first only."""
    found = list(offenders)
    assert not found, "\n".join(["", *found])
