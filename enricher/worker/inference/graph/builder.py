"""Checkpoint weights -> ONNX graph, operator by operator: no exporter and no pattern matching, which can fail silently.

The encoder is written once. A `Variant` supplies what differs between devices: the layout of tokens, how attention finds
its windows, the type of the numbers. checkpoint/families.py knows the names of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.heads import Reads, reads_of
from enricher.worker.inference.graph.heads import HALF_PRECISIONS, add_heads
from enricher.worker.inference.graph.onnx_file import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from enricher.worker.inference.checkpoint.folder import Checkpoint
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
        """Adds the query's bias, the only one of the three that is added here.

        The key's bias adds the same number to all scores of a query, which softmax cancels. The value's bias passes through
        attention unchanged, because the weights of a query sum to one: it is folded into the output projection's bias.
        The query's cannot be folded into the norm before it: that takes the inverse of a weight that is nearly singular.
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
