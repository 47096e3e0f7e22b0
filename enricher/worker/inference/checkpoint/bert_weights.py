"""BERT and the families with its encoder, the post-norm one of Devlin et al. 2019: the names of their weights.

They differ in names, in whether token types exist, in the first position id, and in whether the embeddings are narrower than
the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from enricher.worker.inference.checkpoint.families import CLASSIFIER, EncoderConfig, HeadNames


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


_LABELS = HeadNames(CLASSIFIER)


@dataclass(frozen=True, slots=True)
class BertFamily:
    """Module names of one family, as its `ForTokenClassification` class saves them. Implements `families.Family`."""

    base: str
    """Prefix of everything but the classifier. Encoders without a head are saved without it."""
    classes: HeadNames
    """The family's sequence classification head."""
    labels: HeadNames = _LABELS
    """Its token classification head."""
    config_class: type[EncoderConfig] = EncoderConfig
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

    def refusals(self, config: EncoderConfig) -> Mapping[str, bool]:
        """Other activations, position embeddings and masks than those of BERT."""
        return {
            f"activation {config.activation!r} (only 'gelu' is built)": config.activation != "gelu",
            f"position embeddings {config.position_embedding_type!r} (only 'absolute' are built)": (
                config.position_embedding_type != "absolute"
            ),
            "a decoder (tokens must see what follows them)": config.is_decoder,
        }

    def first_position(self, config: EncoderConfig) -> int:
        """0, or the one after the padding's."""
        if not self.positions_after_padding:
            return 0
        return (1 if config.pad_token_id is None else config.pad_token_id) + 1

    def encoder_weights(self, config: EncoderConfig) -> Iterator[str]:
        """The embeddings' weights, then those of each layer."""
        tables = ["word_embeddings", "position_embeddings", *(["token_type_embeddings"] if self.token_types else [])]
        yield from (f"{self.embeddings(table)}.weight" for table in tables)
        modules = [self.embeddings("LayerNorm")]
        if config.embedding_size not in {None, config.hidden_size}:
            modules.append(self.projection)
        for index in range(config.layers):
            modules += [self.in_layer(index, part) for part in self.layer.modules]
        for module in modules:
            yield from (f"{module}.weight", f"{module}.bias")


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
_ROBERTA = BertFamily(
    "roberta", HeadNames("classifier.out_proj", "classifier.dense", "tanh"), positions_after_padding=True
)

BERT_FAMILIES: dict[str, BertFamily] = {
    "bert": BertFamily("bert", HeadNames(CLASSIFIER, "bert.pooler.dense", "tanh")),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": BertFamily("electra", HeadNames("classifier.out_proj", "classifier.dense", "gelu")),
    "distilbert": BertFamily(
        "distilbert",
        HeadNames(CLASSIFIER, "pre_classifier", "relu"),
        layers="transformer.layer.{}",
        layer=_DISTILBERT_LAYER,
        token_types=False,
    ),
}
"""The families, by `model_type` of config.json. MiniLM says `bert`."""
