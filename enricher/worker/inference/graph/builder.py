"""Checkpoint weights -> ONNX graph, operator by operator: no exporter and no pattern matching, which can fail silently.

The encoder is written once. A `Variant` supplies what differs between devices: the layout of tokens, how attention finds
its windows, the type of the numbers. checkpoint/configuration.py knows the names of the weights.

Behind it, heads turn hidden states into the outputs of the graph, in float32 for every variant. A single NER head has
outputs without a prefix, as in a worker without tasks. worker/heads says what a head reads and which layers it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, Reads, reads_of
from enricher.worker.inference.checkpoint.configuration import CLASSIFIER
from enricher.worker.inference.checkpoint.folder import Checkpoint, OpenFiles
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.records import Float32Array

BUILDER_VERSION = 2
"""Increase it with every change to the graph: cached graphs and gate reports are bound to it."""


def build(checkpoints: Sequence[Checkpoint], variant: Variant, writer: OnnxWriter) -> onnx.ModelProto:
    """One encoder with a head for each checkpoint, in `variant`; each weight is written when it is reached.

    The encoder is the first checkpoint's; the caller makes sure that the others have the same one (same_encoder.py).
    A single NER head gives `logits`, `labels` and `scores`, whose shapes are the variant's token dimensions (`[batch,
    length]` when padded), and `[..., labels]` for the logits. Otherwise head `i` gives `head.{i}.logits`, `head.{i}.labels`
    and `head.{i}.scores` for NER, and `head.{i}.rows` for other kinds: `float32 [windows, values]`, logits or vectors that
    are not normalised. Raises ModelError if a weight is missing or its shape differs from the configuration.
    """
    encoder = checkpoints[0]
    element = np.dtype(np.float16 if variant.precision in HALF_PRECISIONS else np.float32)
    builder = _Encoder(encoder, variant, writer, Weights(encoder, writer, element))
    hidden = builder.embeddings(reads_of([each.head for each in checkpoints]))
    for index in range(encoder.config.layers):
        hidden = builder.layer(index, hidden)
    add_heads(checkpoints, variant, writer, hidden)
    return writer.model(
        "+".join(each.name for each in checkpoints),
        {
            "digest": "+".join(each.digest for each in checkpoints),
            "variant": variant.name,
            "builder": str(BUILDER_VERSION),
        },
    )


@dataclass(frozen=True, slots=True)
class _Encoder:
    checkpoint: Checkpoint
    variant: Variant
    writer: OnnxWriter
    weights: Weights

    def embeddings(self, reads: frozenset[Reads]) -> str:
        """Word + position (+ type 0) -> norm (-> projection if the embeddings are narrower than the encoder)."""
        config, family = self.checkpoint.config, self.checkpoint.family
        width = config.embedding_size or config.hidden_size
        words = self.weights.weight(family.embeddings("word_embeddings"), (config.vocab_size, width))
        self.variant.declare_inputs(self.writer, reads)
        tokens = self.writer.node("Gather", [words, "input_ids"], "words")
        positions = self.variant.positions(
            self.writer, self.weights.write("positions.table", self._position_table(width))
        )
        total = self.writer.node("Add", [tokens, positions], "embeddings.sum")
        normed = self.weights.norm(family.embeddings("LayerNorm"), total, width)
        if width == config.hidden_size:
            return normed
        return self.weights.add_bias(
            family.projection, self.weights.matmul(family.projection, normed, width, config.hidden_size)
        )

    def layer(self, index: int, hidden: str) -> str:
        """Attention, norm, feed-forward, norm."""
        config, family = self.checkpoint.config, self.checkpoint.family
        name, width = family.layer, config.hidden_size
        mixed = self._attention(index, hidden)
        output = self.weights.matmul(family.in_layer(index, name.attention_output), mixed, width, width)
        norm = family.in_layer(index, name.attention_norm)
        attended = self.weights.skip_norm(norm, output, hidden, bias=self._output_bias(index))
        inner = family.in_layer(index, name.intermediate)
        widened = self.weights.matmul(inner, attended, width, config.intermediate_size)
        active = self.writer.node(
            "BiasGelu", [widened, self.weights.bias(inner, config.intermediate_size)], f"{inner}.gelu", domain=MICROSOFT
        )
        outer = family.in_layer(index, name.output)
        narrowed = self.weights.matmul(outer, active, config.intermediate_size, width)
        norm = family.in_layer(index, name.output_norm)
        return self.weights.skip_norm(norm, narrowed, attended, bias=self.weights.bias(outer, width))

    def _attention(self, index: int, hidden: str) -> str:
        """Add attention with the query's bias, the only one of the three biases that is added here.

        The key's bias adds the same number to all scores of a query, which softmax cancels. The value's bias passes through
        attention unchanged, because the weights of a query sum to one: it is folded into the output projection's bias. The
        query's bias cannot be folded into the norm before it: that takes the inverse of a weight that is nearly singular.
        """
        config, family = self.checkpoint.config, self.checkpoint.family
        width = config.hidden_size
        parts = [family.in_layer(index, part) for part in (family.layer.query, family.layer.key, family.layer.value)]
        query, key, value = (self.weights.matmul(part, hidden, width, width) for part in parts)
        query = self.weights.add_bias(parts[0], query)
        output = f"layer.{index}.attention"
        return self.variant.attention(self.writer, (query, key, value), heads=config.heads, output=output)

    def _output_bias(self, index: int) -> str:
        """Write the output projection's bias, with the projected bias of the value added (see `_attention`)."""
        family, width = self.checkpoint.family, self.checkpoint.config.hidden_size
        value = family.in_layer(index, family.layer.value)
        output = family.in_layer(index, family.layer.attention_output)
        projection = self.weights.read(f"{output}.weight", (width, width)).astype(np.float64)
        projected = projection @ self.weights.read(f"{value}.bias", (width,))
        folded = self.weights.read(f"{output}.bias", (width,)) + projected
        return self.weights.write(f"{output}.bias", folded.astype(np.float32))

    def _position_table(self, width: int) -> Float32Array:
        """Positions from the first used one on. Every token has type 0, so that embedding is added here, once."""
        family = self.checkpoint.family
        name = f"{family.embeddings('position_embeddings')}.weight"
        table = self.weights.read(name, (self.checkpoint.config.max_position_embeddings, width))
        if family.token_types:
            types = f"{family.embeddings('token_type_embeddings')}.weight"
            table = table + self.checkpoint.weight(types, self.weights.opened)[0]
        return np.ascontiguousarray(table[self.checkpoint.first_position :])


HALF_PRECISIONS = frozenset({"fp16"})
"""Precisions whose graph is written in float16. bf16 (by OpenVINO) and int8 (by int8.py) are made from a float32 graph."""
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


def add_heads(checkpoints: Sequence[Checkpoint], variant: Variant, writer: OnnxWriter, hidden: str) -> None:
    """Add the head of each checkpoint over the same hidden states. Raises ModelError if a weight does not fit."""
    alone = len(checkpoints) == 1 and KINDS[checkpoints[0].head.kind].layers == "labels"
    states = _States(variant, writer, hidden)
    for index, checkpoint in enumerate(checkpoints):
        head = _Head(checkpoint, variant, writer, "" if alone else f"head.{index}.")
        head.add(states.read(checkpoint.head.reads))


class _States:
    """The values that heads read of the hidden states, in float32. Each value is made once."""

    def __init__(self, variant: Variant, writer: OnnxWriter, hidden: str) -> None:
        self._variant, self._writer, self._hidden = variant, writer, hidden
        self._made: dict[Reads, str] = {}

    def read(self, reads: Reads) -> str:
        if reads not in self._made:
            self._made[reads] = self._make(reads)
        return self._made[reads]

    def _make(self, reads: Reads) -> str:
        if reads == "mean":
            return self._variant.owned_means(self._writer, self._hidden)
        value, name = self._hidden, "hidden"
        if reads == "first":
            value = name = self._variant.first_tokens(self._writer, self._hidden)
        if self._variant.precision not in HALF_PRECISIONS:
            return value
        return self._writer.node("Cast", [value], f"{name}.float32", to=TensorProto.FLOAT)


class _Head:
    """One checkpoint's head. `prefix` begins the names of its outputs, nodes and weights."""

    def __init__(self, checkpoint: Checkpoint, variant: Variant, writer: OnnxWriter, prefix: str) -> None:
        self._checkpoint, self._variant, self._writer, self._prefix = checkpoint, variant, writer, prefix
        self._weights = Weights(checkpoint, writer, np.dtype(np.float32), prefix)

    def add(self, values: str) -> None:
        """Add the head's nodes over the values that it reads, and its outputs."""
        head, rows = self._checkpoint.head, f"{self._prefix}rows"
        layers = KINDS[head.kind].layers
        if layers == "labels":
            self._add_labels(self._linear(CLASSIFIER, values, "logits"))
            return
        if layers == "classifier":
            self._linear(self._checkpoint.family.classes.output, self._dense(values), "rows")
        else:
            self._writer.node("Identity", [values], rows)
        self._writer.output(rows, TensorProto.FLOAT, [self._variant.window_dimension, head.dimensions])

    def _linear(self, name: str, values: str, output: str) -> str:
        """One value per label."""
        width, labels = self._checkpoint.config.hidden_size, self._checkpoint.head.dimensions
        raw = self._weights.matmul(name, values, width, labels)
        return self._weights.add_bias(name, raw, output=output, width=labels)

    def _dense(self, values: str) -> str:
        """The layer before the classifier, with its activation: `[windows, width]`."""
        names, width = self._checkpoint.family.classes, self._checkpoint.config.hidden_size
        raw, output = self._weights.matmul(names.dense, values, width, width), f"{self._prefix}{names.dense}.active"
        if names.activation == "gelu":
            bias = self._weights.bias(names.dense, width)
            return self._writer.node("BiasGelu", [raw, bias], output, domain=MICROSOFT)
        return self._writer.node(_ACTIVATIONS[names.activation], [self._weights.add_bias(names.dense, raw)], output)

    def _add_labels(self, logits: str) -> None:
        """Add the label ids and their probabilities, `1 / sum(exp(logits - highest))`.

        `logits - logits` adds zero to the sum, unless a logit is NaN or infinite: then it makes the score NaN.
        """
        last = self._writer.constant("last_axis", np.array([-1], np.int64))
        best = self._node("ArgMax", [logits], "labels.int64", axis=-1, keepdims=0)
        labels = self._node("Cast", [best], "labels", to=TensorProto.INT32)
        highest = self._node("ReduceMax", [logits, last], "logits.highest", keepdims=1)
        powers = self._node("Exp", [self._node("Sub", [logits, highest], "logits.below")], "logits.exp")
        checked = self._node("Add", [powers, self._node("Sub", [logits, logits], "logits.finite")], "logits.checked")
        total = self._node("ReduceSum", [checked, last], "logits.total", keepdims=0)
        scores = self._node("Reciprocal", [total], "scores")
        tokens = self._variant.token_dimensions
        self._writer.output(logits, TensorProto.FLOAT, [*tokens, self._checkpoint.head.dimensions])
        self._writer.output(labels, TensorProto.INT32, tokens)
        self._writer.output(scores, TensorProto.FLOAT, tokens)

    def _node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:  # noqa: ANN401  as the writer's
        return self._writer.node(operator, inputs, f"{self._prefix}{output}", **attributes)


@dataclass(frozen=True, slots=True)
class Weights:
    """Adds nodes that use weights of one checkpoint. Methods raise ModelError if a weight does not fit."""

    checkpoint: Checkpoint
    writer: OnnxWriter
    element: np.dtype[Any]
    """The type of weights and intermediate values."""
    prefix: str = ""
    """The beginning of every name in the graph, so that no two heads share a name."""
    opened: OpenFiles = field(default_factory=dict)

    def matmul(self, name: str, value: str, width_in: int, width_out: int) -> str:
        """Multiply by a module's weight, which PyTorch stores as `[out, in]` and MatMul takes as `[in, out]`."""
        transposed = np.ascontiguousarray(self.read(f"{name}.weight", (width_out, width_in)).T)
        inputs = [value, self.write(f"{name}.weight", transposed)]
        return self.writer.node("MatMul", inputs, f"{self.prefix}{name}.matmul")

    def norm(self, name: str, value: str, width: int) -> str:
        """Layer norm over the last axis."""
        scale, shift = self.weight(name, (width,)), self.bias(name, width)
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("LayerNormalization", [value, scale, shift], f"{name}.normed", axis=-1, epsilon=epsilon)

    def skip_norm(self, name: str, value: str, skip: str, *, bias: str) -> str:
        """Norm of value + skip + bias, in one operator."""
        width = self.checkpoint.config.hidden_size
        inputs = [value, skip, self.weight(name, (width,)), self.bias(name, width), bias]
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("SkipLayerNormalization", inputs, f"{name}.normed", domain=MICROSOFT, epsilon=epsilon)

    def add_bias(self, name: str, value: str, *, output: str | None = None, width: int | None = None) -> str:
        """Add the bias of a module. `width`: the encoder's by default."""
        bias = self.bias(name, width or self.checkpoint.config.hidden_size)
        return self.writer.node("Add", [value, bias], f"{self.prefix}{output or f'{name}.biased'}")

    def bias(self, name: str, width: int) -> str:
        """Write the bias of a module. Returns its name in the graph."""
        return self.write(f"{name}.bias", self.read(f"{name}.bias", (width,)))

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        """Write the weight of a module. Returns its name in the graph."""
        return self.write(f"{name}.weight", self.read(f"{name}.weight", shape))

    def write(self, name: str, value: Float32Array) -> str:
        """Write a tensor in the graph's type. Returns its name. Raises ModelError if the type cannot represent it."""
        with np.errstate(over="ignore"):
            narrowed = value.astype(self.element, copy=False)
        if not np.isfinite(narrowed).all():
            largest = np.abs(value).max()
            raise ModelError(
                f"{self.checkpoint.folder}: {name} reaches {largest:g}, which {self.element} cannot represent. "
                f"Choose precision fp32."
            )
        return self.writer.weight(f"{self.prefix}{name}", narrowed)

    def read(self, name: str, shape: tuple[int, ...]) -> Float32Array:
        """Read a tensor of the checkpoint. Raises ModelError if it has another shape."""
        value = self.checkpoint.weight(name, self.opened)
        if value.shape != shape:
            raise ModelError(f"{self.checkpoint.folder}: {name} is {value.shape}, not {shape} as config.json says.")
        return value
