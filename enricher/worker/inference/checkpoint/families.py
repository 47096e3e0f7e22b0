"""The interface of an encoder family: what config.json says of it, the names of its weights, and what is refused by name.

Each family is a class in its own file (bert_weights.py, deberta_weights.py, modernbert_weights.py); configuration.py
lists them by `model_type`. graph/ has a file for the encoder of each, and shares heads, variants and writing. Nothing about
ONNX is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from enricher.worker.heads import Reads

CLASSIFIER = "classifier"
"""The token classification head, in every family, and the last layer of some heads for sequences."""

MOST_LAYERS = 1000
"""Forty times what the largest of these models have: the names of all layers' weights are made before any weight is read."""
MOST_POSITIONS = 131_072
"""Sixteen times what the published models take, where no weight limits positions: our own tables have a row for each."""


class EncoderConfig(BaseModel):
    """The parts of config.json that determine the graph. DistilBERT has its own names for some."""

    plain_attention: ClassVar[bool] = True
    """True if attention depends on nothing but query, key and value: no rotary positions, no bias of the scores."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_type: str
    architectures: tuple[str, ...]
    vocab_size: int = Field(gt=0)
    hidden_size: int = Field(gt=0, validation_alias=AliasChoices("hidden_size", "dim"))
    intermediate_size: int = Field(gt=0, validation_alias=AliasChoices("intermediate_size", "hidden_dim"))
    layers: int = Field(gt=0, le=MOST_LAYERS, validation_alias=AliasChoices("num_hidden_layers", "n_layers"))
    heads: int = Field(gt=0, validation_alias=AliasChoices("num_attention_heads", "n_heads"))
    activation: str = Field(validation_alias=AliasChoices("hidden_act", "activation"))
    max_position_embeddings: int = Field(gt=0)
    layer_norm_eps: float = 1e-12
    """DistilBERT has no such key; its code uses this value."""
    embedding_size: int | None = None
    """ELECTRA's narrower embeddings; None if they are as wide as the encoder."""
    pad_token_id: int | None = None
    position_embedding_type: str = "absolute"
    is_decoder: bool = False
    id2label: dict[int, str] = Field(default_factory=dict)
    problem_type: str | None = None
    """The meaning of the values of sequence classification: classes, one or several of which hold, or a number."""

    @property
    def class_reads(self) -> Reads:
        """The part of the hidden states that a head for sequences reads."""
        return "first"


@dataclass(frozen=True, slots=True)
class HeadNames:
    """The layers of a head behind the encoder: at least the last one, and perhaps a layer with an activation before it."""

    output: str
    dense: str | None = None
    activation: Literal["tanh", "gelu", "relu"] = "tanh"
    """The activation behind `dense`."""
    norm: str | None = None
    """A layer norm behind the activation."""
    biased: bool = True
    """True if `dense` and `norm` have a bias; `output` always has one."""

    def weights(self) -> Iterator[str]:
        """The names of the head's weights, in the order of the graph."""
        for module in (each for each in (self.dense, self.norm) if each is not None):
            yield f"{module}.weight"
            if self.biased:
                yield f"{module}.bias"
        yield from (f"{self.output}.weight", f"{self.output}.bias")


class Family(Protocol):
    """One encoder family, as its classes in transformers save it."""

    @property
    def base(self) -> str:
        """Prefix of everything but the head. Encoders without a head are saved without it."""
        ...

    @property
    def labels(self) -> HeadNames:
        """The head of `ForTokenClassification`."""
        ...

    @property
    def classes(self) -> HeadNames:
        """The head of `ForSequenceClassification`."""
        ...

    @property
    def config_class(self) -> type[EncoderConfig]:
        """The parts of config.json that determine the graph."""
        ...

    def refusals(self, config: EncoderConfig) -> Mapping[str, bool]:
        """Return what is not built, in words, and whether this configuration asks for it."""
        ...

    def first_position(self, config: EncoderConfig) -> int:
        """The position id of a window's first token."""
        ...

    def encoder_weights(self, config: EncoderConfig) -> Iterator[str]:
        """The names of the weights below every head, in the order of the graph."""
        ...
