"""ModernBERT's encoder: norms before attention and feed-forward, rotary positions, gated GELU, global and local attention.

The inputs are declared, and heads come behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from onnx import TensorProto

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.modernbert_weights import LayerKind, ModernBertConfig, ModernBertFamily
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.variants import Scored, Variant
from enricher.worker.inference.graph.weights import Weights, distances, most_places, token_places

OUT_OF_REACH = -1e4
"""The bias that hides a key: exp(-1e4) is zero in every precision, and float16 represents it. Finite, because a query of
padding may see no other key: with infinity its row would be NaN, and would spoil the products of the next layer."""


@dataclass(frozen=True, slots=True)
class ModernBertEncoder:
    """Adds the nodes of the encoder. Methods raise ModelError if a weight does not fit."""

    checkpoint: Checkpoint
    config: ModernBertConfig
    family: ModernBertFamily
    variant: Variant
    writer: OnnxWriter
    weights: Weights

    def hidden_states(self) -> str:
        """The last hidden states of every token."""
        width, base = self.config.hidden_size, self.family.base
        table = self.weights.weight(f"{base}.embeddings.tok_embeddings", (self.config.vocab_size, width))
        tokens = self.writer.node("Gather", [table, "input_ids"], "words")
        hidden = self._norm(f"{base}.embeddings.norm", tokens)
        scored = {kind: self._scores(kind) for kind in dict.fromkeys(self.config.kinds)}
        for index, kind in enumerate(self.config.kinds):
            hidden = self._layer(index, hidden, scored[kind])
        return self._norm(f"{base}.final_norm", hidden)

    def _layer(self, index: int, hidden: str, scored: Scored) -> str:
        """Each half adds to its input. The first layer's input was normalised by the embeddings."""
        name = partial(self.family.in_layer, index)
        normed = self._norm(name("attn_norm"), hidden) if index else hidden
        mixed = self._attention(index, normed, scored)
        attended = self.writer.node("Add", [hidden, mixed], name("attended"))
        fed = self._feed_forward(index, self._norm(name("mlp_norm"), attended))
        return self.writer.node("Add", [attended, fed], name("hidden"))

    def _attention(self, index: int, value: str, scored: Scored) -> str:
        name, width = partial(self.family.in_layer, index), self.config.hidden_size
        parts = self.weights.read(f"{name('attn.Wqkv')}.weight", (3 * width, width)).reshape(3, width, width)
        query, key, values = (
            self.weights.product(name(f"attn.{part}"), value, weight)
            for part, weight in zip(("query", "key", "value"), parts, strict=True)
        )
        mixed = self.variant.attention(
            self.writer, (query, key, values), heads=self.config.heads, output=name("attention"), scored=scored
        )
        return self.weights.matmul(name("attn.Wo"), mixed, width, width)

    def _feed_forward(self, index: int, value: str) -> str:
        """GELU of the first half of `Wi`, times the second half."""
        name, inner = partial(self.family.in_layer, index), self.config.intermediate_size
        whole = self.weights.read(f"{name('mlp.Wi')}.weight", (2 * inner, self.config.hidden_size))
        widened, gate = (
            self.weights.product(name(f"mlp.{part}"), value, weight)
            for part, weight in (("input", whole[:inner]), ("gate", whole[inner:]))
        )
        active = self.writer.node("Gelu", [widened], name("mlp.gelu"), domain=MICROSOFT)
        gated = self.writer.node("Mul", [active, gate], name("mlp.gated"))
        return self.weights.matmul(name("mlp.Wo"), gated, inner, self.config.hidden_size)

    def _norm(self, name: str, value: str) -> str:
        return self.weights.norm(name, value, self.config.hidden_size, biased=False)

    def _scores(self, kind: LayerKind) -> Scored:
        """The change of the scores in layers of this kind: turned queries and keys, and the bias of local attention."""
        turn = self._rotation(kind)
        bias = self._local_bias if kind == "sliding_attention" else lambda _query: ""
        return lambda query, key: (turn(query), turn(key), bias(query))

    def _rotation(self, kind: LayerKind) -> Callable[[str], str]:
        """Rotary positions, counted from 0 in each window.

        Frequencies and angles are rounded to float32 as transformers has them, where position 8,192 turns by another angle
        than in float64.
        """
        size = self.config.hidden_size // self.config.heads
        exponents = np.arange(0, size, 2) / size
        frequencies = (self.config.theta(kind) ** -exponents).astype(np.float32)
        angles = (np.arange(most_places(self.config), dtype=np.float32)[:, None] * frequencies).astype(np.float64)
        tables = [
            self.weights.write(f"{kind}.{name}", values.astype(np.float32))
            for name, values in (("cosines", np.cos(angles)), ("sines", np.sin(angles)))
        ]

        def turn(value: str) -> str:
            inputs = [value, self._places_by_window(value), *tables]
            return self.writer.node(
                "RotaryEmbedding",
                inputs,
                f"{value}.turned",
                domain=MICROSOFT,
                interleaved=0,
                num_heads=self.config.heads,
            )

        return turn

    def _local_bias(self, value: str) -> str:
        """`[1, 1, length, length]`, made once: 0 within reach, OUT_OF_REACH beyond it."""
        name, node, constant = "local.bias", self.writer.node, self.writer.constant
        if self.writer.has(name):
            return name
        places = token_places(self.writer, value, most_places(self.config))
        distance = node("Abs", [distances(self.writer, places)], "local.distance")
        reach = constant("local.reach", np.array(self.config.reach_tokens, np.int64))
        beyond = node("Greater", [distance, reach], "local.beyond")
        hidden, seen = (
            constant(f"local.{what}", np.array(bias, self.weights.element))
            for what, bias in (("hidden", OUT_OF_REACH), ("seen", 0))
        )
        plane = node("Where", [beyond, hidden, seen], "local.plane")
        return node("Unsqueeze", [plane, constant("local.axes", np.array([0, 1], np.int64))], name)

    def _places_by_window(self, value: str) -> str:
        """`[windows, length]`: the places of the tokens of `value`, the same in each row."""
        node, made = self.writer.node, "places.by_window"
        if self.writer.has(made):
            return made
        places = token_places(self.writer, value, most_places(self.config))
        zeros = node(
            "Cast", [node("Sub", ["lengths", "lengths"], "places.int32")], "places.zeros", to=TensorProto.INT64
        )
        axis = self.writer.constant("places.column_axis", np.array([1], np.int64))
        return node("Add", [node("Unsqueeze", [zeros, axis], "places.column"), places], made)
