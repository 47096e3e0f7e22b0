"""The names that each encoder family has for its weights: one table; no other code knows a family by name.

All of them are the same post-norm encoder (Devlin et al. 2019). They differ in names, in whether token types exist, in the
first position id, and in whether the embeddings are narrower than the encoder. Nothing about ONNX belongs here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal


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
        """All of them, in the order of the graph."""
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
    """Its sequence classification head."""
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
