"""The recipe of an int8 graph: its schema, reading and writing. It has ranges and choices, but no weights.

A recipe is valid for the model and the graph builder that it names. With them it determines the int8 graph completely.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from enricher.errors import ModelError

if TYPE_CHECKING:
    from enricher.worker.records import Float32Array

RECIPE_FILE = "int8.json"
"""Its name in a model's folder."""
SCHEMA_VERSION: Literal[1] = 1
STEPS_PER_OCTAVE = 8
"""Gains are powers of 2 ** (1 / 8): one byte each, and the loss by rounding to them is too small to measure."""
SMALLEST_RANGE = 255 * float(np.finfo(np.float32).tiny)
LARGEST_RANGE = 255 * float(np.finfo(np.float32).max)
"""Outside these ranges the scale, a 255th of the range in float32, would be 0 or infinite."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class TextsFile(_Part):
    """The file that the texts come from."""

    name: str
    digest: str = Field(description="sha256 (hex) of the file.")
    number: int = Field(description="Texts in it.")


class TextsUsed(TextsFile):
    """The texts on which the ranges were calibrated."""

    windows: int = Field(description="Windows that were used, held-out ones included.")
    tokens: int = Field(description="Tokens in those windows.")


class QuantisedInput(_Part):
    """One value of the graph that becomes uint8, and the products with int8 weights that take it."""

    value: str = Field(description="Name of the value in the float32 graph.")
    products: tuple[str, ...] = Field(description="The products that take it: names of weights without `.weight`.")
    low: float = Field(le=0, description="Lowest value after gains that uint8 represents.")
    high: float = Field(gt=0, description="The highest.")
    clip: float = Field(description="Range over the largest value seen: 1 if nothing was clipped.")
    exponent: float = Field(description="SmoothQuant's migration strength; 0 if there are no gains.")
    gains: str = Field(
        pattern="^[A-Za-z0-9+/]*={0,2}$",
        description="Base64 of one int8 per channel, in eighths of a power of two; empty if all are 1.",
    )

    @field_validator("gains")
    @classmethod
    def _is_base64(cls, value: str) -> str:
        base64.b64decode(value, validate=True)  # its error is a ValueError
        return value

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        if not SMALLEST_RANGE <= self.high - self.low <= LARGEST_RANGE:
            message = f"no scale can represent values from {self.low} to {self.high}"
            raise ValueError(message)
        return self

    def gain_array(self) -> Float32Array | None:
        """The divisor of each channel before it is rounded, `float32 [channels]`; None if nothing is divided."""
        if not self.gains:
            return None
        steps = np.frombuffer(base64.b64decode(self.gains), np.int8)
        return np.exp2(steps.astype(np.float64) / STEPS_PER_OCTAVE).astype(np.float32)


class KeptProduct(_Part):
    """A product that is not quantised."""

    name: str
    reason: str


class Measured(_Part):
    """int8 compared with float32 on held-out windows, from which no ranges were taken."""

    windows: int
    tokens: int
    divergence: float = Field(description="Mean Kullback-Leibler divergence of the labels' probabilities, in nats.")
    equal_labels: float = Field(description="Share of tokens with the same label.")
    target: float = Field(description="The share of equal labels that was asked for.")

    @property
    def missed(self) -> str | None:
        """The target and what was reached, if that is less; None if the target was reached."""
        if self.equal_labels >= self.target:
            return None
        return f"calibration wanted {100 * self.target:.2f} % of labels, reached {100 * self.equal_labels:.2f} %"


class Recipe(_Part):
    """The whole recipe."""

    schema_version: Literal[1] = SCHEMA_VERSION
    model_digest: str = Field(description="sha256 (hex) of config, weights and tokenizer, as in every record.")
    builder_version: int = Field(description="Version of the graph builder.")
    seed: int
    texts: TextsUsed
    inputs: tuple[QuantisedInput, ...]
    kept: tuple[KeptProduct, ...] = Field(description="Products that stay in bf16 or float32, and why.")
    measured: Measured

    @property
    def digest(self) -> str:
        """sha256 (hex) of the recipe: equal digests make equal graphs of the same model."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def products(self) -> tuple[str, ...]:
        """The names of all quantised products."""
        return tuple(product for each in self.inputs for product in each.products)

    def counts_for(self, model_digest: str, builder_version: int) -> bool:
        """True if it was made for this model and this builder."""
        return (self.model_digest, self.builder_version) == (model_digest, builder_version)


def encode_gains(steps: np.ndarray[tuple[int, ...], np.dtype[np.int8]]) -> str:
    """`QuantisedInput.gains` of `int8 [channels]`; empty if all are zero."""
    return base64.b64encode(steps.tobytes()).decode() if steps.any() else ""


def six_digits(value: float) -> float:
    """Round to six significant digits: later digits differ from processor to processor, and recipes must not."""
    return float(f"{value:.6g}")


def recipe_path(folder: Path) -> Path:
    """The path of a model's recipe."""
    return folder / RECIPE_FILE


def read_recipe(folder: Path) -> Recipe | None:
    """The recipe in a model's folder; None if there is none. Raises ModelError if it cannot be read."""
    path = recipe_path(folder)
    try:
        return Recipe.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ModelError(
            f"{path}: this int8 recipe cannot be read: {error}. "
            f"`enricher model prepare --precision int8 --calibrate FILE` makes another."
        ) from error


def write_recipe(folder: Path, recipe: Recipe) -> Path:
    """Write the recipe into a model's folder. Raises ModelError."""
    path = recipe_path(folder)
    try:
        path.write_text(recipe.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        message = f"the int8 recipe cannot be written: {error}. Make room for it, or choose another --out."
        raise ModelError(message) from error
    return path
