"""What is known to suit a model, from `enricher.json` in its folder. Settings win over it; without one there are defaults.

It changes how articles are cut, not what the model computes, so it is no part of the model's digest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import orjson

from enricher.errors import ModelError

ADVICE_FILE = "enricher.json"


@dataclass(frozen=True, slots=True)
class Advice:
    """Measured for this model: `max_window_tokens` and `overlap_tokens`, both with special tokens as settings count them."""

    max_window_tokens: int = 256
    overlap_tokens: int = 64


def advice_for(folder: Path, most_window_tokens: int) -> Advice:
    """The folder's advice, else defaults, never above what the model takes. Raises ModelError for a malformed file."""
    path = folder / ADVICE_FILE
    if not path.is_file():
        return Advice(max_window_tokens=min(Advice().max_window_tokens, most_window_tokens))
    try:
        advice = Advice(**orjson.loads(path.read_bytes()))
    except (orjson.JSONDecodeError, TypeError) as error:
        known = ", ".join(field.name for field in fields(Advice))
        message = f"{path}: expected a JSON object with {known}"
        raise ModelError(message) from error
    if not all(isinstance(value, int) for value in (advice.max_window_tokens, advice.overlap_tokens)):
        message = f"{path}: all values are whole numbers of tokens"
        raise ModelError(message)
    return Advice(min(advice.max_window_tokens, most_window_tokens), advice.overlap_tokens)
