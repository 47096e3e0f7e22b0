"""Multinomial logistic regression with numpy: convex, deterministic, seconds for some thousand texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from enricher.worker.records import Float32Array

_STEPS = 600
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True)
class Regression:
    """Logits are `(rows - mean) / scale @ weight.T + bias`: `weight` is `[classes, width]`."""

    mean: Float32Array
    scale: Float32Array
    weight: Float32Array
    bias: Float32Array

    def logits(self, rows: Float32Array) -> Float32Array:
        """`float32 [rows, classes]`."""
        found: Float32Array = ((rows - self.mean) / self.scale @ self.weight.T + self.bias).astype(np.float32)
        return found


def train(
    rows: Float32Array, classes: np.ndarray[tuple[int], np.dtype[np.int64]], count: int, *, penalty: float
) -> Regression:
    """The regression that explains these rows. `penalty`: of the squared weights, per row; the bias is free.

    Classes weigh the same, however many rows each has.
    """
    mean, scale = rows.mean(0), rows.std(0) + 1e-6
    known = np.eye(count)[classes]
    weights = 1 / (count * known.sum(0).clip(1)[classes])
    inputs = np.hstack([(rows - mean) / scale, np.ones((len(rows), 1))])
    fades = np.append(np.full(rows.shape[1], penalty), 0.0)
    # The largest curvature: softmax has at most 1/2 per unit of input.
    curvature = 0.5 * np.linalg.norm((inputs * weights[:, None]).T @ inputs, 2) + penalty
    found = ahead = np.zeros((count, inputs.shape[1]))
    for step in range(_STEPS):
        odds = inputs @ ahead.T
        odds = np.exp(odds - odds.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        slope = ((odds - known) * weights[:, None]).T @ inputs + fades * ahead
        better = ahead - slope / curvature
        ahead = better + step / (step + 3) * (better - found)
        found = better
        if np.abs(slope).max() < _CLOSE:
            break
    return Regression(*(each.astype(np.float32) for each in (mean, scale, found[:, :-1], found[:, -1])))
