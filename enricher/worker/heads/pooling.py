"""The answer for an article from those of its windows. Windows overlap; each token has one owner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from enricher.worker.records import Float32Array, OwnedRow, Pooling


def pool(rows: Sequence[OwnedRow], pooling: Pooling) -> Float32Array:
    """`float32 [values]`. `mean` weighs each window by the tokens that it owns, in the order of the article."""
    ordered = sorted(rows, key=lambda each: each.start)
    values = np.stack([each.row for each in ordered]).astype(np.float64)
    if pooling == "first_window":
        row = values[0]
    elif pooling == "max":
        row = values.max(axis=0)
    else:
        weights = np.array([each.tokens for each in ordered], np.float64)
        row = weights @ values / weights.sum()
    pooled_row: Float32Array = row.astype(np.float32)
    return pooled_row
