"""The names of a checkpoint's weights: those of the graph, those that change no answer, and the others, which are refused.

transformers only warns about weights that a model has no place for, and answers without them: those of a CRF, of an adapter,
of a second head, of layers that config.json does not count. Names are enough to see that; no weight is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.families import CLASSIFIER, FAMILIES, Family

if TYPE_CHECKING:
    from enricher.worker.heads import Layers
    from enricher.worker.inference.checkpoint.configuration import EncoderConfig

MERGE_ADAPTER = "Merge an adapter into the weights where PyTorch is (PEFT: merge_and_unload), and save the whole model."
_OLD_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
"""Checkpoints converted from TensorFlow keep its names for these two; transformers renames them too."""
_CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""The numbers 0, 1, 2, ... and zeros, which older releases of transformers saved."""
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")
"""Beside the encoder in many checkpoints for named entities and vectors; only BERT's head for sequences reads it."""
_PRE_TRAINING = (
    *("cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
    *("generator_predictions.", "generator_lm_head.", "discriminator_predictions."),
)
"""The heads of pre-training. An encoder that makes vectors may have been saved with its own; transformers saves none of them
beside a head for tokens or sequences, so there it would be a second head."""
_CLASSES = {
    "labels": "AutoModelForTokenClassification",
    "classifier": "AutoModelForSequenceClassification",
    "none": "AutoModel",
}
"""The class of transformers that saves a folder without unread weights, by the layers of the head."""
_SHOWN = 5
"""The number of names in a message."""


def encoder_weights(config: EncoderConfig, family: Family) -> Iterator[str]:
    """The names of the weights below every head, in the order of the graph."""
    tables = ["word_embeddings", "position_embeddings", *(["token_type_embeddings"] if family.token_types else [])]
    yield from (f"{family.embeddings(table)}.weight" for table in tables)
    modules = [family.embeddings("LayerNorm")]
    if config.embedding_size not in {None, config.hidden_size}:
        modules.append(family.projection)
    for index in range(config.layers):
        modules += [family.in_layer(index, part) for part in family.layer.modules]
    yield from _of_modules(modules)


def head_weights(family: Family, layers: Layers) -> Iterator[str]:
    """The names of the weights of a head, in the order of the graph."""
    modules = {"labels": (CLASSIFIER,), "classifier": family.classes.modules, "none": ()}
    yield from _of_modules(modules[layers])


def stored_name(name: str, family: Family, stored: Collection[str]) -> str | None:
    """The name of a weight among those stored: of an encoder that was saved alone, without the family's prefix."""
    for known in (name, name.removeprefix(f"{family.base}.")):
        if known in stored:
            return known
        for new, old in _OLD_NAMES:
            if known.endswith(new) and (renamed := known.replace(new, old)) in stored:
                return renamed
    return None


def refuse_unread(folder: Path, config: EncoderConfig, layers: Layers, stored: Collection[str]) -> None:
    """Raise ModelError if answers may depend on a weight that no graph reads. `stored`: the names of all weights."""
    family = FAMILIES[config.model_type]
    names = (*encoder_weights(config, family), *head_weights(family, layers))
    unread = set(stored) - {stored_name(name, family, stored) for name in names}
    unread -= {prefix + name for name in (*_CONSTANTS, *_POOLER) for prefix in ("", f"{family.base}.")}
    if layers == "none":
        unread = {name for name in unread if not name.startswith(_PRE_TRAINING)}
    if unread:
        shown = ", ".join(sorted(unread)[:_SHOWN]) + (", ..." if len(unread) > _SHOWN else "")
        raise ModelError(
            f"{folder}: {len(unread)} of {len(stored)} weights would be ignored, and its answers may depend on them "
            f"({shown}). A {config.model_type} of {config.layers} layers with this head has no place for them. "
            f"{MERGE_ADAPTER} A CRF or a second head is not supported: choose a checkpoint without. If the model was "
            f"not trained with them, {_CLASSES[layers]}.from_pretrained(...).save_pretrained(...) leaves them out."
        )


def _of_modules(modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        yield from (f"{module}.weight", f"{module}.bias")
