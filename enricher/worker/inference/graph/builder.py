"""Checkpoint weights -> ONNX graph, operator by operator: no exporter and no pattern matching, which can fail silently.

Each architecture has a file with its encoder (bert.py); this one joins it to heads. A `Variant` supplies what differs
between devices: the layout of tokens, how attention finds its windows, the type of the numbers. checkpoint/families.py says
what a family tells of its weights.

Heads turn hidden states into the outputs of the graph, in float32 for every variant. A single NER head has outputs without a
prefix, as in a worker without tasks. worker/heads says what a head reads and which layers it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from enricher.worker.heads import KINDS, Reads, reads_of
from enricher.worker.inference.checkpoint.bert_weights import BertFamily
from enricher.worker.inference.checkpoint.deberta_weights import DebertaConfig, DebertaFamily
from enricher.worker.inference.checkpoint.families import HeadNames
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.modernbert_weights import ModernBertConfig, ModernBertFamily
from enricher.worker.inference.graph.bert import BertEncoder
from enricher.worker.inference.graph.deberta import DebertaEncoder, DistanceOrder, embedded_distances
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.modernbert import ModernBertEncoder
from enricher.worker.inference.graph.variants import MEANS, Variant
from enricher.worker.inference.graph.weights import Weights

BUILDER_VERSION = 2
"""Increase it with every change to the graph: cached graphs and gate reports are bound to it."""


def build(checkpoints: Sequence[Checkpoint], variant: Variant, writer: OnnxWriter) -> onnx.ModelProto:
    """Build one encoder with a head for each checkpoint, in `variant`; each weight is written when it is reached.

    The encoder is the first checkpoint's; the caller makes sure that all others have the same one (same_encoder.py). A
    single NER head gives `logits`, `labels` and `scores`, whose shapes are the variant's token dimensions (`[batch,
    length]` when padded), and `[..., labels]` for the logits. Otherwise head `i` gives `head.{i}.logits`,
    `head.{i}.labels` and `head.{i}.scores` for NER, and `head.{i}.rows` for other kinds: `float32 [windows, values]`,
    logits or vectors that are not normalised. Raises ModelError if a weight is missing or its shape differs from the
    configuration.
    """
    encoder = checkpoints[0]
    element = np.dtype(np.float16 if variant.precision in HALF_PRECISIONS else np.float32)
    variant.declare_inputs(writer, reads_of([each.head for each in checkpoints]))
    hidden = _hidden_states(encoder, variant, writer, Weights(encoder, writer, element))
    add_heads(checkpoints, variant, writer, hidden)
    return writer.model(
        "+".join(each.name for each in checkpoints),
        {
            "digest": "+".join(each.digest for each in checkpoints),
            "variant": variant.name,
            "builder": str(BUILDER_VERSION),
        },
    )


def _hidden_states(checkpoint: Checkpoint, variant: Variant, writer: OnnxWriter, weights: Weights) -> str:
    """Add the encoder of the checkpoint's family."""
    family = checkpoint.family
    if isinstance(family, ModernBertFamily):
        config = checkpoint.config
        assert isinstance(config, ModernBertConfig)
        return ModernBertEncoder(checkpoint, config, family, variant, writer, weights).hidden_states()
    if isinstance(family, DebertaFamily):
        config = checkpoint.config
        assert isinstance(config, DebertaConfig)
        order = DistanceOrder.of(config)
        embedded = embedded_distances(weights, family, config, order)
        return DebertaEncoder(checkpoint, family, variant, writer, weights, config, order, embedded).hidden_states()
    assert isinstance(family, BertFamily), f"no encoder for {checkpoint.config.model_type}"
    return BertEncoder(checkpoint, family, variant, writer, weights).hidden_states()


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
        if reads in MEANS:
            return self._variant.means(self._writer, self._hidden, reads)
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
        head, family, rows = self._checkpoint.head, self._checkpoint.family, f"{self._prefix}rows"
        layers = KINDS[head.kind].layers
        if layers == "labels":
            self._add_labels(self._linear(family.labels, self._dense(family.labels, values), "logits"))
            return
        if layers == "classifier":
            self._linear(family.classes, self._dense(family.classes, values), "rows")
        else:
            self._writer.node("Identity", [values], rows)
        self._writer.output(rows, TensorProto.FLOAT, [self._variant.window_dimension, head.dimensions])

    def _linear(self, names: HeadNames, values: str, output: str) -> str:
        """One value per label."""
        width, labels = self._checkpoint.config.hidden_size, self._checkpoint.head.dimensions
        raw = self._weights.matmul(names.output, values, width, labels)
        return self._weights.add_bias(names.output, raw, output=output, width=labels)

    def _dense(self, names: HeadNames, values: str) -> str:
        """The layers before the last one, if there are any: `[..., width]`."""
        if names.dense is None:
            return values
        width = self._checkpoint.config.hidden_size
        raw, output = self._weights.matmul(names.dense, values, width, width), f"{self._prefix}{names.dense}.active"
        if names.activation != "gelu":
            biased = self._weights.add_bias(names.dense, raw) if names.biased else raw
            active = self._writer.node(_ACTIVATIONS[names.activation], [biased], output)
        elif names.biased:
            bias = self._weights.bias(names.dense, width)
            active = self._writer.node("BiasGelu", [raw, bias], output, domain=MICROSOFT)
        else:
            active = self._writer.node("Gelu", [raw], output, domain=MICROSOFT)
        return active if names.norm is None else self._weights.norm(names.norm, active, width, biased=names.biased)

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
