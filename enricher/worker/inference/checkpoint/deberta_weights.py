"""DeBERTa-v2 and v3 (He et al. 2021; both say `deberta-v2`): configuration and names of weights.

Layers are BERT's, with attention that also scores the distance of two tokens: by the query against the distance ("c2p",
content to position), and by the key against it ("p2c"). Distances have embeddings, shared by all layers; each layer projects
them like queries and keys, with its own weights or with those of the text (`share_att_key`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field, field_validator

from enricher.worker.inference.checkpoint.bert_weights import BertFamily, LayerNames
from enricher.worker.inference.checkpoint.families import CLASSIFIER, MOST_POSITIONS, EncoderConfig, HeadNames

TERMS: Mapping[str, str] = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
"""The terms of the score by distance, and each layer's projection of the distances for it, unless it is shared."""


class DebertaConfig(EncoderConfig):
    """The parts of config.json that determine the graph. Defaults are those of transformers."""

    plain_attention: ClassVar[bool] = False

    layer_norm_eps: float = 1e-7
    type_vocab_size: int = Field(0, ge=0)
    relative_attention: bool = False
    pos_att_type: tuple[str, ...] = ()
    """Written as a list, or as one text: `p2c|c2p`."""
    max_relative_positions: int = -1
    position_buckets: int = -1
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    position_biased_input: bool = True
    """True if absolute positions are added to the embeddings."""
    conv_kernel_size: int = 0
    attention_head_size: int | None = None
    pooler_hidden_size: int | None = None
    pooler_hidden_act: str = "gelu"

    @field_validator("pos_att_type", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.lower().split("|")]
        return [] if value is None else value

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the score by distance."""
        return tuple(term for term in TERMS if term in self.pos_att_type)

    @property
    def relative_positions(self) -> int:
        """The distance from which on all distances are alike, before buckets."""
        return self.max_position_embeddings if self.max_relative_positions < 1 else self.max_relative_positions

    @property
    def span(self) -> int:
        """Half the number of embeddings of distances: those of -span to span - 1, or of that many buckets."""
        return self.position_buckets if self.position_buckets > 0 else self.relative_positions

    @property
    def norms_distances(self) -> bool:
        """True if the embeddings of distances go through a layer norm."""
        return self.norm_rel_ebd.strip().lower() == "layer_norm"


@dataclass(frozen=True, slots=True)
class DebertaFamily(BertFamily):
    """BERT's names, with those of the distances. Implements `families.Family`."""

    def refusals(self, config: EncoderConfig) -> Mapping[str, bool]:
        """The convolution of large v2 models, other activations and widths, and distances that do not fit."""
        assert isinstance(config, DebertaConfig)
        size, width, furthest = config.hidden_size // config.heads, config.hidden_size, config.max_position_embeddings
        others = ", ".join(sorted(set(config.pos_att_type) - TERMS.keys()))
        middle = config.position_buckets // 2
        return {
            f"conv_kernel_size {config.conv_kernel_size}, a convolution (its ONNX export runs: name that file)": (
                config.conv_kernel_size > 0
            ),
            f"activation {config.activation!r} (only 'gelu' is built)": config.activation != "gelu",
            f"pooler_hidden_act {config.pooler_hidden_act!r} (only 'gelu' is built)": config.pooler_hidden_act
            != "gelu",
            "relative_attention false (only models with it are built)": not config.relative_attention,
            f"pos_att_type {others or 'without a term'} (only c2p and p2c are built)": (
                others != "" or not config.pos_att_type
            ),
            f"norm_rel_ebd {config.norm_rel_ebd!r} (only 'layer_norm' and 'none' are built)": (
                not config.norms_distances and config.norm_rel_ebd.strip().lower() != "none"
            ),
            f"attention heads of size {config.attention_head_size} (only {size}, the width over the heads)": (
                config.attention_head_size not in {None, size}
            ),
            f"embeddings or a pooler of another width than {width}": bool(
                {config.embedding_size, config.pooler_hidden_size} - {None, width}
            ),
            f"{max(furthest, config.span)} positions or distances (at most {MOST_POSITIONS})": (
                max(furthest, config.span) > MOST_POSITIONS
            ),
            f"position_buckets {config.position_buckets} for {config.relative_positions} relative positions": (
                config.position_buckets == 1
                or (config.position_buckets > 0 and config.relative_positions - 1 <= middle < furthest - 1)
            ),
        }

    def encoder_weights(self, config: EncoderConfig) -> Iterator[str]:
        """The embeddings' weights, those of the distances, then those of each layer."""
        assert isinstance(config, DebertaConfig)
        yield f"{self.embeddings('word_embeddings')}.weight"
        if config.position_biased_input:
            yield f"{self.embeddings('position_embeddings')}.weight"
        if config.type_vocab_size:
            yield f"{self.embeddings('token_type_embeddings')}.weight"
        yield f"{self.distances}.weight"
        modules = [self.embeddings("LayerNorm"), *([self.distances_norm] if config.norms_distances else [])]
        own = () if config.share_att_key else [TERMS[term] for term in config.terms]
        for index in range(config.layers):
            modules += [self.in_layer(index, part) for part in self.layer.modules]
            modules += [self.in_layer(index, f"attention.self.{part}") for part in own]
        for module in modules:
            yield from (f"{module}.weight", f"{module}.bias")

    @property
    def distances(self) -> str:
        """The module with the embeddings of the distances."""
        return f"{self.base}.encoder.rel_embeddings"

    @property
    def distances_norm(self) -> str:
        """The norm of these embeddings."""
        return f"{self.base}.encoder.LayerNorm"


DEBERTA = DebertaFamily(
    "deberta",
    HeadNames(CLASSIFIER, "pooler.dense", "gelu"),
    config_class=DebertaConfig,
    layer=LayerNames(*(f"attention.self.{part}_proj" for part in ("query", "key", "value"))),
)
"""The only family with this encoder."""
