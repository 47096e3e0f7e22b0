"""Heads: hidden states -> outputs of the graph, in float32 for every variant.

A single NER head has outputs without a prefix, as in a worker without tasks. worker/heads says what a head reads and which
layers it has; checkpoint/families.py says what its weights are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.families import CLASSIFIER
from enricher.worker.inference.graph.onnx_file import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.heads import Reads
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.graph.variants import Variant

HALF_PRECISIONS = frozenset({"fp16"})
"""Precisions whose graph is written in float16. bf16 (by OpenVINO) and int8 (by qdq.py) are made from a float32 graph."""
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


def add_heads(checkpoints: Sequence[Checkpoint], variant: Variant, writer: OnnxWriter, hidden: str) -> None:
    """Add the head of each checkpoint over the same hidden states. Raises ModelError if a weight does not fit."""
    alone = len(checkpoints) == 1 and KINDS[checkpoints[0].head.kind].layers == "labels"
    states = _States(variant, writer, hidden)
    for index, checkpoint in enumerate(checkpoints):
        head = _Head(checkpoint, variant, writer, "" if alone else f"head.{index}.")
        head.add(states.read(checkpoint.head.reads))


class _States:
    """The values that heads read of the hidden states, each made once, in float32."""

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
