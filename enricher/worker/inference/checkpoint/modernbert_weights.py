"""ModernBERT (Warner et al. 2024), and mmBERT, which is one with another vocabulary: configuration and names of weights.

Layers of two kinds alternate. Global ones see the whole window; local ones see `local_attention / 2` tokens on each side.
Each kind has its own rotary frequencies. Older releases of transformers write the kinds as one number,
`global_attn_every_n_layers`, and newer ones as a list, `layer_types`; the same goes for frequencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from enricher.worker.heads import Reads
from enricher.worker.inference.checkpoint.families import CLASSIFIER, MOST_POSITIONS, EncoderConfig, HeadNames

LayerKind = Literal["full_attention", "sliding_attention"]
"""The names of transformers for a global and a local layer."""


class RotaryConfig(BaseModel):
    """The rotary positions of one kind of layer, as newer releases of transformers write them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    rope_type: str = "default"
    rope_theta: float | None = Field(None, gt=0)


class ModernBertConfig(EncoderConfig):
    """The parts of config.json that determine the graph. Defaults are those of transformers."""

    plain_attention: ClassVar[bool] = False

    activation: str = Field("gelu", validation_alias="hidden_activation")
    layer_norm_eps: float = Field(1e-5, validation_alias="norm_eps")
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    classifier_pooling: Literal["cls", "mean"] = "cls"
    """The state that a head for sequences reads: the first token's, or the mean over all tokens."""
    local_attention: int = Field(128, gt=0)
    """The tokens that a token of a local layer sees, half of them on each side."""
    global_attn_every_n_layers: int = Field(3, gt=0)
    layer_types: tuple[LayerKind, ...] | None = None
    global_rope_theta: float = Field(160_000.0, gt=0)
    local_rope_theta: float = Field(10_000.0, gt=0)
    rope_parameters: dict[str, RotaryConfig | None] | None = None
    rope_scaling: Any = None

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer."""
        if self.layer_types is not None:
            return self.layer_types
        every = self.global_attn_every_n_layers
        return tuple("sliding_attention" if index % every else "full_attention" for index in range(self.layers))

    @property
    def class_reads(self) -> Reads:
        """The first token, or all."""
        return "first" if self.classifier_pooling == "cls" else "whole"

    @property
    def reach_tokens(self) -> int:
        """The greatest distance over which a token of a local layer sees another."""
        return self.local_attention // 2

    def theta(self, kind: LayerKind) -> float:
        """The base of the rotary frequencies."""
        newer = (self.rope_parameters or {}).get(kind)
        if newer is not None and newer.rope_theta is not None:
            return newer.rope_theta
        return self.global_rope_theta if kind == "full_attention" else self.local_rope_theta


@dataclass(frozen=True, slots=True)
class ModernBertFamily:
    """The only family with this encoder. Implements `families.Family`."""

    base: ClassVar[str] = "model"
    labels: ClassVar[HeadNames] = HeadNames(CLASSIFIER, "head.dense", "gelu", "head.norm", biased=False)
    """The token classification head, whose layers are those of `classes`."""
    classes: ClassVar[HeadNames] = labels
    config_class: ClassVar[type[EncoderConfig]] = ModernBertConfig

    def refusals(self, config: EncoderConfig) -> Mapping[str, bool]:
        """Biases, other activations, scaled positions, and kinds of layers that do not fit."""
        assert isinstance(config, ModernBertConfig)
        kinds, rotary = config.kinds, [each for each in (config.rope_parameters or {}).values() if each is not None]
        size = config.hidden_size // config.heads
        return {
            f"activation {config.activation!r} (only 'gelu' is built)": config.activation != "gelu",
            f"classifier_activation {config.classifier_activation!r} (only 'gelu' is built)": (
                config.classifier_activation != "gelu"
            ),
            **{
                f"{name} true (only models without it are built)": getattr(config, name)
                for name in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
            },
            "scaled rotary positions (only 'default' are built)": (
                config.rope_scaling is not None or any(each.rope_type != "default" for each in rotary)
            ),
            f"layer_types for {len(kinds)} layers, and num_hidden_layers {config.layers}": len(kinds) != config.layers,
            f"attention heads of size {size} (rotary positions turn pairs)": size % 2 != 0,
            f"{config.max_position_embeddings} positions (at most {MOST_POSITIONS})": (
                config.max_position_embeddings > MOST_POSITIONS
            ),
        }

    def first_position(self, config: EncoderConfig) -> int:
        """Always 0."""
        del config
        return 0

    def encoder_weights(self, config: EncoderConfig) -> Iterator[str]:
        """Weights without any bias. The first layer has no norm before its attention: the embeddings' norm is there."""
        yield f"{self.base}.embeddings.tok_embeddings.weight"
        yield f"{self.base}.embeddings.norm.weight"
        for index in range(config.layers):
            modules = ("attn_norm", "attn.Wqkv", "attn.Wo", "mlp_norm", "mlp.Wi", "mlp.Wo")
            yield from (f"{self.in_layer(index, part)}.weight" for part in modules[0 if index else 1 :])
        yield f"{self.base}.final_norm.weight"

    def in_layer(self, index: int, part: str) -> str:
        """The full name of module `part` in layer `index`."""
        return f"{self.base}.layers.{index}.{part}"
