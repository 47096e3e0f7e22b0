"""The defects of `mutants.toml` can still be made. `scripts/test --mutants` makes them."""

from __future__ import annotations

from pathlib import Path

from mutants import MUTANTS, place_of
from support.offenders import assert_none


def test_every_defect_can_still_be_made() -> None:
    """Its text occurs once in its file, becomes another, and the test file that catches it is there."""
    tests = Path(__file__).parent
    assert_none(
        each.defect
        for each in MUTANTS
        if place_of(each).read_text("utf-8").count(each.before) != 1
        or each.before == each.after
        or not (tests / each.caught_by).is_file()
    )


def test_the_quick_tests_catch_most_defects() -> None:
    """So a defect of this kind shows within a minute."""
    assert len([each for each in MUTANTS if not each.broker]) >= 15
    assert len(MUTANTS) >= 20
    assert len({each.defect for each in MUTANTS}) == len(MUTANTS)
