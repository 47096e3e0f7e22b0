"""How many seeds of a simulation each kind of run takes."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

_TOGETHER = 100


def seeds(quick: int, plain: int, every: int) -> list[ParameterSet]:
    """Values for `parametrize`: the first seeds for `--quick`, more for a plain run, and all for `--all`."""
    rest = [range(first, min(first + _TOGETHER, every)) for first in range(plain, every, _TOGETHER)]
    return [
        pytest.param(range(quick), id="few"),
        pytest.param(range(quick, plain), id="more", marks=pytest.mark.slow),
        *(pytest.param(each, id=f"{each.start} and later", marks=pytest.mark.long) for each in rest),
    ]
