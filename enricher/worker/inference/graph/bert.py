"""The post-norm encoder of BERT and its families, written once. The inputs are declared, and heads come behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from enricher.worker.inference.checkpoint.bert_weights import BertFamily
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.graph.weights import Weights
from enricher.worker.records import Float32Array


@dataclass(frozen=True, slots=True)
class BertEncoder:
    """Adds the nodes of the encoder. Methods raise ModelError if a weight does not fit."""

    checkpoint: Checkpoint
    family: BertFamily
    variant: Variant
    writer: OnnxWriter
    weights: Weights

    def hidden_states(self) -> str:
        """The last hidden states of every token."""
        hidden = self._embeddings()
        for index in range(self.checkpoint.config.layers):
            hidden = self._layer(index, hidden)
        return hidden

    def _embeddings(self) -> str:
        """Word + position (+ type 0) -> norm (-> projection if the embeddings are narrower than the encoder)."""
        config, family = self.checkpoint.config, self.family
        width = config.embedding_size or config.hidden_size
        words = self.weights.weight(family.embeddings("word_embeddings"), (config.vocab_size, width))
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

    def _layer(self, index: int, hidden: str) -> str:
        """Attention, norm, feed-forward, norm."""
        config, family = self.checkpoint.config, self.family
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
        config, family = self.checkpoint.config, self.family
        width = config.hidden_size
        parts = [family.in_layer(index, part) for part in (family.layer.query, family.layer.key, family.layer.value)]
        query, key, value = (self.weights.matmul(part, hidden, width, width) for part in parts)
        query = self.weights.add_bias(parts[0], query)
        output = f"layer.{index}.attention"
        return self.variant.attention(self.writer, (query, key, value), heads=config.heads, output=output, scored=None)

    def _output_bias(self, index: int) -> str:
        """Write the output projection's bias, with the projected bias of the value added (see `_attention`)."""
        family, width = self.family, self.checkpoint.config.hidden_size
        value = family.in_layer(index, family.layer.value)
        output = family.in_layer(index, family.layer.attention_output)
        projection = self.weights.read(f"{output}.weight", (width, width)).astype(np.float64)
        projected = projection @ self.weights.read(f"{value}.bias", (width,))
        folded = self.weights.read(f"{output}.bias", (width,)) + projected
        return self.weights.write(f"{output}.bias", folded.astype(np.float32))

    def _position_table(self, width: int) -> Float32Array:
        """Positions, from the first used one on. Every token has type 0, so that embedding is added here, once."""
        family = self.family
        name = f"{family.embeddings('position_embeddings')}.weight"
        table = self.weights.read(name, (self.checkpoint.config.max_position_embeddings, width))
        if family.token_types:
            types = f"{family.embeddings('token_type_embeddings')}.weight"
            table = table + self.checkpoint.weight(types, self.weights.opened)[0]
        return np.ascontiguousarray(table[self.checkpoint.first_position :])
