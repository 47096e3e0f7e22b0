"""The names of each encoder family's weights, in one table. No other code knows a family by name.

All families are the same post-norm encoder (Devlin et al. 2019). They differ in names, in whether token types exist, in the
first position id, and in whether the embeddings are narrower than the encoder. Nothing about ONNX belongs here.

A checkpoint may have weights of the graph and weights that change no answer; all other weights are refused. transformers
only warns about weights that a model has no place for, and answers without them: the weights of a CRF, of an adapter, of a
second head, of layers that config.json does not count. Names are enough to see that; no weight is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from enricher.errors import ModelError

if TYPE_CHECKING:
    from enricher.worker.heads import Layers
    from enricher.worker.inference.checkpoint.configuration import EncoderConfig


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Module names within one encoder layer, BERT's by default; each has a `.weight` and a `.bias`."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    attention_output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    intermediate: str = "intermediate.dense"
    output: str = "output.dense"
    output_norm: str = "output.LayerNorm"

    @property
    def modules(self) -> tuple[str, ...]:
        """All modules of the layer, in the order of the graph."""
        return tuple(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class ClassHeadNames:
    """The two layers of a `ForSequenceClassification` head; between them an activation."""

    dense: str
    activation: Literal["tanh", "gelu", "relu"]
    output: str

    @property
    def modules(self) -> tuple[str, str]:
        """Both layers; each has a `.weight` and a `.bias`."""
        return self.dense, self.output


@dataclass(frozen=True, slots=True)
class Family:
    """Module names of one encoder family, as its `ForTokenClassification` class saves them."""

    base: str
    """Prefix of everything but the classifier. Encoders without a head are saved without it."""
    classes: ClassHeadNames
    """The family's sequence classification head."""
    layers: str = "encoder.layer.{}"
    """Prefix of layer `{}`, after `base`."""
    layer: LayerNames = field(default_factory=LayerNames)
    token_types: bool = True
    """False if the family has no token type embeddings."""
    positions_after_padding: bool = False
    """True if position ids begin at `pad_token_id + 1`, as in fairseq, instead of 0."""

    def embeddings(self, part: str) -> str:
        """The full name of an embedding module, such as `word_embeddings`."""
        return f"{self.base}.embeddings.{part}"

    def in_layer(self, index: int, part: str) -> str:
        """The full name of module `part` in layer `index`."""
        return f"{self.base}.{self.layers.format(index)}.{part}"

    @property
    def projection(self) -> str:
        """The module between narrow embeddings and the encoder; present only if the widths differ."""
        return f"{self.base}.embeddings_project"


CLASSIFIER = "classifier"
"""The token classification head, in every family, and the last layer of some heads for sequences."""

_DISTILBERT_LAYER = LayerNames(
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    intermediate="ffn.lin1",
    output="ffn.lin2",
    output_norm="output_layer_norm",
)
_ROBERTA = Family(
    "roberta", ClassHeadNames("classifier.dense", "tanh", "classifier.out_proj"), positions_after_padding=True
)

FAMILIES: dict[str, Family] = {
    "bert": Family("bert", ClassHeadNames("bert.pooler.dense", "tanh", CLASSIFIER)),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": Family("electra", ClassHeadNames("classifier.dense", "gelu", "classifier.out_proj")),
    "distilbert": Family(
        "distilbert",
        ClassHeadNames("pre_classifier", "relu", CLASSIFIER),
        "transformer.layer.{}",
        _DISTILBERT_LAYER,
        token_types=False,
    ),
}
"""The families, by `model_type` of config.json. MiniLM says `bert`."""


MERGE_ADAPTER = "Merge an adapter into the weights where PyTorch is (PEFT: merge_and_unload), and save the whole model."
_OLD_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
"""Checkpoints converted from TensorFlow keep its names for these two; transformers renames them too."""
_CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constants (the numbers 0, 1, 2, ..., and zeros) that older releases of transformers saved."""
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")
"""A layer in many checkpoints for named entities and vectors, which only BERT's head for sequences reads."""
_PRE_TRAINING = (
    *("cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
    *("generator_predictions.", "generator_lm_head.", "discriminator_predictions."),
)
"""The heads of pre-training. An encoder that makes vectors may have been saved with one; beside a head for tokens or
sequences transformers saves none, so there it would be a second head."""
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
    """The stored name of a weight, which lacks the family's prefix if the encoder was saved alone; None if it is missing."""
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
