"""What properties and simulations are tried with: texts, and how many examples or seeds each kind of run takes."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings
from hypothesis import strategies as st


def any_text(min_size: int = 0, max_size: int | None = None) -> st.SearchStrategy[str]:
    """What UTF-8 can represent. By its own default, hypothesis computes the same alphabet for three seconds."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=min_size, max_size=max_size)


def examples(plain: int, **more: Any) -> settings:  # noqa: ANN401  any other setting
    """So many in a plain run; in another profile, such as that of `--quick`, the share of its own usual number."""
    usual = settings.get_profile("timeless").max_examples
    return settings(max_examples=max(1, plain * settings().max_examples // usual), **more)


_TOGETHER = 100


def seeds(quick: int, plain: int, every: int) -> list[ParameterSet]:
    """Values for `parametrize`: the first seeds for `--quick`, more for a plain run, and all for `--all`."""
    rest = [range(first, min(first + _TOGETHER, every)) for first in range(plain, every, _TOGETHER)]
    return [
        pytest.param(range(quick), id="few"),
        pytest.param(range(quick, plain), id="more", marks=pytest.mark.slow),
        *(pytest.param(each, id=f"{each.start} and later", marks=pytest.mark.long) for each in rest),
    ]
