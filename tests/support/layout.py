"""Splits a model output into windows, as its graph variant lays them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from enricher.worker.inference.graph.variants import Variant
from enricher.worker.records import Window


def rows_of(variant: Variant, output: npt.NDArray[Any], windows: Sequence[Window]) -> list[npt.NDArray[Any]]:
    """Arrays of shape `[length]` or `[length, labels]`, one per window, without padding."""
    starts, dimensions = variant.starts(windows, output.shape), len(variant.token_dimensions)
    tokens = output.reshape(-1, *output.shape[dimensions:])
    return [tokens[start : start + len(window.ids)] for window, start in zip(windows, starts, strict=True)]
