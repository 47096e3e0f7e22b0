"""Checkpoint weights -> ONNX graph, operator by operator: no export, no patterns, so nothing fails to fuse in silence.

The encoder is written once. What differs between devices (how tokens of several windows are laid out, how attention
finds its windows, the type of the numbers) is asked of a `Form`. What each family calls its weights is families.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from enricher.errors import ModelError
from enricher.inference.families import CLASSIFIER
from enricher.inference.onnxfile import MICROSOFT, OnnxWriter

if TYPE_CHECKING:
    import onnx

    from enricher.inference.checkpoint import Checkpoint
    from enricher.inference.forms import Form

BUILDER_VERSION = 1
"""Raise it with every change to what is built: graphs in people's caches carry it in their names."""


def build(checkpoint: Checkpoint, form: Form, writer: OnnxWriter) -> onnx.ModelProto:
    """The whole model in `form`, weights written as they are reached. Outputs: `logits`, `labels`, `scores`.

    Their shapes are the form's token dimensions (`[batch, length]` when padded), and `[..., labels]` for the logits.
    Raises ModelError where a weight is missing or has another shape than the configuration says.
    """
    builder = _Builder(checkpoint, form, writer)
    hidden = builder.embeddings()
    for index in range(checkpoint.config.layers):
        hidden = builder.layer(index, hidden)
    builder.answers(builder.classifier(hidden))
    return writer.model(
        checkpoint.name, {"digest": checkpoint.digest, "form": form.name, "builder": str(BUILDER_VERSION)}
    )


@dataclass(frozen=True, slots=True)
class _Builder:
    checkpoint: Checkpoint
    form: Form
    writer: OnnxWriter

    def embeddings(self) -> str:
        """Word + position (+ type 0) -> norm (-> projection where the embeddings are narrower than the encoder)."""
        config, family = self.checkpoint.config, self.checkpoint.family
        width = config.embedding_size or config.hidden_size
        words = self._weight(family.embeddings("word_embeddings"), (config.vocab_size, width))
        self.form.declare_inputs(self.writer)
        tokens = self.writer.node("Gather", [words, "input_ids"], "words")
        positions = self.form.positions(self.writer, self.writer.weight("positions.table", self._position_table(width)))
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
        output = family.in_layer(index, name.attention_output)
        attended = self._skip_norm(
            family.in_layer(index, name.attention_norm), self._matmul(output, mixed, width, width), hidden, output
        )
        inner = family.in_layer(index, name.intermediate)
        widened = self._matmul(inner, attended, width, config.intermediate_size)
        active = self.writer.node(
            "BiasGelu", [widened, self._bias(inner, config.intermediate_size)], f"{inner}.gelu", domain=MICROSOFT
        )
        outer = family.in_layer(index, name.output)
        narrowed = self._matmul(outer, active, config.intermediate_size, width)
        return self._skip_norm(family.in_layer(index, name.output_norm), narrowed, attended, outer)

    def classifier(self, hidden: str) -> str:
        """The logits, in float32 whatever the form computes in."""
        labels = len(self.checkpoint.labels)
        raw = self._matmul(CLASSIFIER, hidden, self.checkpoint.config.hidden_size, labels)
        return self._add_bias(CLASSIFIER, raw, output="logits", width=labels)

    def answers(self, logits: str) -> None:
        """Label ids and the probability of each: `1 / sum(exp(logits - highest))`.

        `logits - logits` adds nothing to the sum unless one of them is NaN or infinite; then the score is NaN too.
        """
        node, last = self.writer.node, self.writer.constant("last_axis", np.array([-1], np.int64))
        node("Cast", [node("ArgMax", [logits], "labels.int64", axis=-1, keepdims=0)], "labels", to=TensorProto.INT32)
        highest = node("ReduceMax", [logits, last], "logits.highest", keepdims=1)
        powers = node("Exp", [node("Sub", [logits, highest], "logits.below")], "logits.exp")
        checked = node("Add", [powers, node("Sub", [logits, logits], "logits.finite")], "logits.checked")
        node("Reciprocal", [node("ReduceSum", [checked, last], "logits.total", keepdims=0)], "scores")
        tokens = self.form.token_dimensions
        self.writer.output("logits", TensorProto.FLOAT, [*tokens, len(self.checkpoint.labels)])
        self.writer.output("labels", TensorProto.INT32, tokens)
        self.writer.output("scores", TensorProto.FLOAT, tokens)

    def _attention(self, index: int, hidden: str) -> str:
        config, family = self.checkpoint.config, self.checkpoint.family
        width = config.hidden_size
        parts = [family.in_layer(index, part) for part in (family.layer.query, family.layer.key, family.layer.value)]
        query, key, value = (self._matmul(part, hidden, width, width) for part in parts)
        biases = np.concatenate([self._read(f"{part}.bias", (width,)) for part in parts])
        bias = self.writer.weight(f"layer.{index}.attention.bias", biases)
        return self.form.attention(
            self.writer, (query, key, value), bias, heads=config.heads, output=f"layer.{index}.attention"
        )

    def _position_table(self, width: int) -> np.typing.NDArray[np.float32]:
        """Positions from the first one used. Every token has type 0, so its embedding is added here, once."""
        family = self.checkpoint.family
        name = f"{family.embeddings('position_embeddings')}.weight"
        table = self._read(name, (self.checkpoint.config.max_position_embeddings, width))
        if family.token_types:
            table = table + self.checkpoint.weight(f"{family.embeddings('token_type_embeddings')}.weight")[0]
        return np.ascontiguousarray(table[self.checkpoint.first_position :])

    def _matmul(self, name: str, value: str, width_in: int, width_out: int) -> str:
        """PyTorch keeps `[out, in]`; MatMul wants `[in, out]`."""
        transposed = np.ascontiguousarray(self._read(f"{name}.weight", (width_out, width_in)).T)
        return self.writer.node("MatMul", [value, self.writer.weight(f"{name}.weight", transposed)], f"{name}.matmul")

    def _norm(self, name: str, value: str, width: int) -> str:
        scale, shift = self._weight(name, (width,)), self._bias(name, width)
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("LayerNormalization", [value, scale, shift], f"{name}.normed", axis=-1, epsilon=epsilon)

    def _skip_norm(self, name: str, value: str, skip: str, bias_of: str) -> str:
        """Norm of value + skip + bias, in one operator."""
        width = self.checkpoint.config.hidden_size
        inputs = [value, skip, self._weight(name, (width,)), self._bias(name, width), self._bias(bias_of, width)]
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("SkipLayerNormalization", inputs, f"{name}.normed", domain=MICROSOFT, epsilon=epsilon)

    def _add_bias(self, name: str, value: str, *, output: str | None = None, width: int | None = None) -> str:
        bias = self._bias(name, width or self.checkpoint.config.hidden_size)
        return self.writer.node("Add", [value, bias], output or f"{name}.biased")

    def _bias(self, name: str, width: int) -> str:
        return self.writer.weight(f"{name}.bias", self._read(f"{name}.bias", (width,)))

    def _weight(self, name: str, shape: tuple[int, ...]) -> str:
        return self.writer.weight(f"{name}.weight", self._read(f"{name}.weight", shape))

    def _read(self, name: str, shape: tuple[int, ...]) -> np.typing.NDArray[np.float32]:
        value = self.checkpoint.weight(name)
        if value.shape != shape:
            raise ModelError(f"{self.checkpoint.folder}: {name} is {value.shape}, not {shape} as config.json says.")
        return value
