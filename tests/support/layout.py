"""An output of the model, window by window, as its form says where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from enricher.inference.graph.variants import Form
from enricher.records import Window


def rows_of(form: Form, output: npt.NDArray[Any], windows: Sequence[Window]) -> list[npt.NDArray[Any]]:
    """`[length]` or `[length, labels]` for each window, padding cut off."""
    starts, dimensions = form.starts(windows, output.shape), len(form.token_dimensions)
    tokens = output.reshape(-1, *output.shape[dimensions:])
    return [tokens[start : start + len(window.ids)] for window, start in zip(windows, starts, strict=True)]
