"""An int8 recipe that quantises nothing: valid for its model, and made at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.int8 import Measured, Recipe, TextsUsed

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint


def empty_recipe(checkpoint: Checkpoint, **changes: Any) -> Recipe:  # noqa: ANN401  any field
    """For `checkpoint`, unless `changes` say otherwise."""
    recipe = Recipe(
        model_digest=checkpoint.digest,
        builder_version=BUILDER_VERSION,
        seed=0,
        texts=TextsUsed(name="none", digest="0" * 64, number=0, windows=0, tokens=0),
        inputs=(),
        kept=(),
        measured=Measured(windows=0, tokens=0, divergence=0.0, equal_labels=1.0, target=0.998),
    )
    return recipe.model_copy(update=changes)
