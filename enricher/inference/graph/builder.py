"""Checkpoint weights -> ONNX graph, operator by operator. No export and no pattern matching can fail silently.

The encoder is written once. A `Variant` supplies what differs between devices: the layout of tokens, how attention finds
its windows, the type of the numbers. checkpoint/families.py knows the names of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from enricher.errors import ModelError
from enricher.inference.checkpoint.families import CLASSIFIER
from enricher.inference.graph.onnx_file import MICROSOFT, OnnxWriter

if TYPE_CHECKING:
    import onnx

    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.graph.variants import Variant
    from enricher.records import Float32Array

BUILDER_VERSION = 2
"""Increase it with every change to the graph: cached graphs and gate reports are bound to it."""
_HALF_PRECISIONS = frozenset({"fp16"})
"""Written as float16. OpenVINO makes bf16 from a float32 graph, and quantisation/qdq.py makes int8."""


def build(checkpoint: Checkpoint, variant: Variant, writer: OnnxWriter) -> onnx.ModelProto:
    """The whole model in `variant`; each weight is written when it is reached. Outputs: `logits`, `labels`, `scores`.

    Their shapes are the variant's token dimensions (`[batch, length]` when padded), and `[..., labels]` for the logits.
    Raises ModelError if a weight is missing or its shape differs from the configuration.
    """
    element = np.dtype(np.float16 if variant.precision in _HALF_PRECISIONS else np.float32)
    builder = _Builder(checkpoint, variant, writer, element)
    hidden = builder.embeddings()
    for index in range(checkpoint.config.layers):
        hidden = builder.layer(index, hidden)
    builder.answers(builder.classifier(hidden))
    return writer.model(
        checkpoint.name, {"digest": checkpoint.digest, "variant": variant.name, "builder": str(BUILDER_VERSION)}
    )


@dataclass(frozen=True, slots=True)
class _Builder:
    checkpoint: Checkpoint
    variant: Variant
    writer: OnnxWriter
    element: np.dtype[Any]
    """The type of weights and intermediate values."""

    def embeddings(self) -> str:
        """Word + position (+ type 0) -> norm (-> projection if the embeddings are narrower than the encoder)."""
        config, family = self.checkpoint.config, self.checkpoint.family
        width = config.embedding_size or config.hidden_size
        words = self._weight(family.embeddings("word_embeddings"), (config.vocab_size, width))
        self.variant.declare_inputs(self.writer)
        tokens = self.writer.node("Gather", [words, "input_ids"], "words")
        positions = self.variant.positions(self.writer, self._write("positions.table", self._position_table(width)))
        total = self.writer.node("Add", [tokens, positions], "embeddings.sum")
        normed = self._norm(family.embeddings("LayerNorm"), total, width)
        if width == config.hidden_size:
            return normed
        return self._add_bias(family.projection, self._matmul(family.projection, normed, width, config.hidden_size))

    def layer(self, index: int, hidden: str) -> str:
        """Attention, norm, feed-forward, norm."""
        config, family = self.checkpoint.config, self.checkpoint.family
        name, width = family.layer, config.hidden_size
        mixed = self._attention(index, hidden)
        output = self._matmul(family.in_layer(index, name.attention_output), mixed, width, width)
        norm = family.in_layer(index, name.attention_norm)
        attended = self._skip_norm(norm, output, hidden, bias=self._output_bias(index))
        inner = family.in_layer(index, name.intermediate)
        widened = self._matmul(inner, attended, width, config.intermediate_size)
        active = self.writer.node(
            "BiasGelu", [widened, self._bias(inner, config.intermediate_size)], f"{inner}.gelu", domain=MICROSOFT
        )
        outer = family.in_layer(index, name.output)
        narrowed = self._matmul(outer, active, config.intermediate_size, width)
        norm = family.in_layer(index, name.output_norm)
        return self._skip_norm(norm, narrowed, attended, bias=self._bias(outer, width))

    def classifier(self, hidden: str) -> str:
        """The logits, in float32 for every variant."""
        labels = len(self.checkpoint.labels)
        if self.element != np.float32:
            hidden = self.writer.node("Cast", [hidden], "hidden.float32", to=TensorProto.FLOAT)
        exact = replace(self, element=np.dtype(np.float32))
        raw = exact._matmul(CLASSIFIER, hidden, self.checkpoint.config.hidden_size, labels)  # noqa: SLF001  the same class
        return exact._add_bias(CLASSIFIER, raw, output="logits", width=labels)  # noqa: SLF001  as above

    def answers(self, logits: str) -> None:
        """Label ids and their probabilities: `1 / sum(exp(logits - highest))`.

        `logits - logits` adds zero to the sum unless a logit is NaN or infinite; then the score is NaN too.
        """
        node, last = self.writer.node, self.writer.constant("last_axis", np.array([-1], np.int64))
        node("Cast", [node("ArgMax", [logits], "labels.int64", axis=-1, keepdims=0)], "labels", to=TensorProto.INT32)
        highest = node("ReduceMax", [logits, last], "logits.highest", keepdims=1)
        powers = node("Exp", [node("Sub", [logits, highest], "logits.below")], "logits.exp")
        checked = node("Add", [powers, node("Sub", [logits, logits], "logits.finite")], "logits.checked")
        node("Reciprocal", [node("ReduceSum", [checked, last], "logits.total", keepdims=0)], "scores")
        tokens = self.variant.token_dimensions
        self.writer.output("logits", TensorProto.FLOAT, [*tokens, len(self.checkpoint.labels)])
        self.writer.output("labels", TensorProto.INT32, tokens)
        self.writer.output("scores", TensorProto.FLOAT, tokens)

    def _attention(self, index: int, hidden: str) -> str:
        """Of the three biases only the query's is added here.

        The key's bias adds the same number to all scores of a query, which softmax cancels. The value's bias passes through
        attention unchanged, because the weights of a query sum to one: it is folded into the output projection's bias.
        """
        config, family = self.checkpoint.config, self.checkpoint.family
        width = config.hidden_size
        parts = [family.in_layer(index, part) for part in (family.layer.query, family.layer.key, family.layer.value)]
        query, key, value = (self._matmul(part, hidden, width, width) for part in parts)
        query = self._add_bias(parts[0], query)
        output = f"layer.{index}.attention"
        return self.variant.attention(self.writer, (query, key, value), heads=config.heads, output=output)

    def _output_bias(self, index: int) -> str:
        """The output projection's bias, plus its projection of the value's bias."""
        family, width = self.checkpoint.family, self.checkpoint.config.hidden_size
        value, output = (family.in_layer(index, part) for part in (family.layer.value, family.layer.attention_output))
        projection = self._read(f"{output}.weight", (width, width)).astype(np.float64)
        folded = self._read(f"{output}.bias", (width,)) + projection @ self._read(f"{value}.bias", (width,))
        return self._write(f"{output}.bias", folded.astype(np.float32))

    def _position_table(self, width: int) -> Float32Array:
        """Positions from the first used one on. Every token has type 0, so that embedding is added here, once."""
        family = self.checkpoint.family
        name = f"{family.embeddings('position_embeddings')}.weight"
        table = self._read(name, (self.checkpoint.config.max_position_embeddings, width))
        if family.token_types:
            table = table + self.checkpoint.weight(f"{family.embeddings('token_type_embeddings')}.weight")[0]
        return np.ascontiguousarray(table[self.checkpoint.first_position :])

    def _matmul(self, name: str, value: str, width_in: int, width_out: int) -> str:
        """PyTorch stores `[out, in]`; MatMul takes `[in, out]`."""
        transposed = np.ascontiguousarray(self._read(f"{name}.weight", (width_out, width_in)).T)
        return self.writer.node("MatMul", [value, self._write(f"{name}.weight", transposed)], f"{name}.matmul")

    def _norm(self, name: str, value: str, width: int) -> str:
        scale, shift = self._weight(name, (width,)), self._bias(name, width)
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("LayerNormalization", [value, scale, shift], f"{name}.normed", axis=-1, epsilon=epsilon)

    def _skip_norm(self, name: str, value: str, skip: str, *, bias: str) -> str:
        """Norm of value + skip + bias, in one operator."""
        width = self.checkpoint.config.hidden_size
        inputs = [value, skip, self._weight(name, (width,)), self._bias(name, width), bias]
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("SkipLayerNormalization", inputs, f"{name}.normed", domain=MICROSOFT, epsilon=epsilon)

    def _add_bias(self, name: str, value: str, *, output: str | None = None, width: int | None = None) -> str:
        bias = self._bias(name, width or self.checkpoint.config.hidden_size)
        return self.writer.node("Add", [value, bias], output or f"{name}.biased")

    def _bias(self, name: str, width: int) -> str:
        return self._write(f"{name}.bias", self._read(f"{name}.bias", (width,)))

    def _weight(self, name: str, shape: tuple[int, ...]) -> str:
        return self._write(f"{name}.weight", self._read(f"{name}.weight", shape))

    def _write(self, name: str, value: Float32Array) -> str:
        with np.errstate(over="ignore"):
            narrowed = value.astype(self.element, copy=False)
        if not np.isfinite(narrowed).all():
            largest = np.abs(value).max()
            raise ModelError(
                f"{self.checkpoint.folder}: {name} reaches {largest:g}, which {self.element} cannot represent. "
                f"Choose precision fp32."
            )
        return self.writer.weight(name, narrowed)

    def _read(self, name: str, shape: tuple[int, ...]) -> Float32Array:
        value = self.checkpoint.weight(name)
        if value.shape != shape:
            raise ModelError(f"{self.checkpoint.folder}: {name} is {value.shape}, not {shape} as config.json says.")
        return value
