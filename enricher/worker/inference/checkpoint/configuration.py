"""Reads config.json: the parts that determine the graph, the kind of the head, and the family's names of the weights.

No other code knows a family by name. All families are the same post-norm encoder (Devlin et al. 2019). They differ in names,
in whether token types exist, in the first position id, and in whether the embeddings are narrower than the encoder.

A checkpoint may have weights of the graph and weights that change no answer; all other weights are refused. transformers
only warns about weights that a model has no place for, and answers without them: the weights of a CRF, of an adapter, of a
second head, of layers that config.json does not count. Names are enough to see that; no weight is read, and nothing about
ONNX belongs here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, Head, HeadFiles, Layers


class EncoderConfig(BaseModel):
    """The parts of config.json that determine the graph. DistilBERT has its own names for some."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_type: str
    architectures: tuple[str, ...]
    vocab_size: int = Field(gt=0)
    hidden_size: int = Field(gt=0, validation_alias=AliasChoices("hidden_size", "dim"))
    intermediate_size: int = Field(gt=0, validation_alias=AliasChoices("intermediate_size", "hidden_dim"))
    layers: int = Field(gt=0, validation_alias=AliasChoices("num_hidden_layers", "n_layers"))
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


def read_config(folder: Path) -> dict[str, Any]:
    """The values of config.json. Raises ModelError."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise ModelError(
            f"{folder}: no such folder. A model is a folder on this machine; "
            f"`hf download NAME --local-dir FOLDER` makes one."
        )
    if not path.is_file():
        raise ModelError(f"{folder}: no config.json. The folder must be a Hugging Face checkpoint, or its ONNX export.")
    return read_object(path)


def read_object(path: Path) -> dict[str, Any]:
    """The values of a JSON object. Raises ModelError."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: this configuration cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path}: this configuration cannot be read: it is not a JSON object")
    return values


def read_encoder(folder: Path) -> tuple[EncoderConfig, type[Head]]:
    """The configuration of a model whose graph we build, and the kind of its head. Raises ModelError."""
    values = read_config(folder)
    architecture = _architecture(values)
    # First, because models that are not supported may lack the keys that are checked next.
    kind = _kind(folder, str(values.get("model_type")), head_files(folder, architecture, values))
    try:
        config = EncoderConfig.model_validate({**values, "architectures": [architecture]})
    except ValidationError as error:
        raise ModelError(f"{folder / 'config.json'}: this configuration cannot be read: {error}") from error
    refusals = {
        f"activation {config.activation!r} (only 'gelu' is built)": config.activation != "gelu",
        f"position embeddings {config.position_embedding_type!r} (only 'absolute' are built)": (
            config.position_embedding_type != "absolute"
        ),
        "a decoder (tokens must see what follows them)": config.is_decoder,
        f"{config.heads} heads over width {config.hidden_size}": config.hidden_size % config.heads != 0,
    }
    for what, refused in refusals.items():
        if refused:
            raise ModelError(f"{folder}: not supported: {what}. Choose another checkpoint.")
    return config, kind


def head_files(folder: Path, architecture: str, config: Mapping[str, Any]) -> HeadFiles:
    """The facts by which a kind of head recognises and describes its checkpoint. `config`: the values of config.json."""
    return HeadFiles(
        folder,
        architecture,
        config,
        has=lambda name: (folder / name).is_file(),
        read=lambda name: (folder / name).read_bytes(),
        read_object=lambda name: read_object(folder / name),
    )


def _architecture(values: Mapping[str, Any]) -> str:
    architectures = values.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else "model without a name"


def _kind(folder: Path, model_type: str, files: HeadFiles) -> type[Head]:
    """The kind of the head. Raises ModelError if the family or the head is not supported."""
    architecture = files.architecture
    if model_type not in FAMILIES:
        raise ModelError(
            f"{folder}: {architecture} ({model_type}) is not supported. Supported are checkpoints of "
            f"{', '.join(FAMILIES)}; MiniLM counts as bert. Its export as ONNX runs, for entities, "
            f"classes, a number or vectors: a folder with model.onnx, config.json and the tokenizer's files, for vectors "
            f"modules.json and 1_Pooling too (`optimum-cli export onnx --task token-classification --model SOURCE FOLDER`; "
            f"text-classification or feature-extraction for others). Else choose one of those."
        )
    for kind in reversed(KINDS.values()):
        if kind.recognises(files):
            return kind
    raise ModelError(
        f"{folder}: this checkpoint is a {architecture}: it has no token classification head, none for sequences, and no "
        f"1_Pooling/config.json of sentence-transformers. Fine-tune it for named entities or classes, or choose one whose "
        f"architecture ends in ForTokenClassification or ForSequenceClassification; for vectors, download "
        f"all files of its folder."
    )


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
