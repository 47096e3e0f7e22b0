"""DeBERTa's encoder (v2 and v3): BERT's, whose scores of query and key also depend on the distance between their tokens.

The score of a query at place i and a key at place j is

    (query . key  +  query . K[i - j]  +  key . Q[i - j]) / sqrt(size of a head * (1 + number of terms))

where the terms with K and Q are called "c2p" and "p2c". K and Q are the embeddings of distances, projected by the layer.
They do not depend on the text, so they are projected here and stored as weights. A run makes the products with all
distances that its windows may have, and each pair of tokens takes its own. Distances have the order in which longer windows
need them, so that short windows use only the beginning of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from enricher.worker.inference.checkpoint.deberta_weights import TERMS, DebertaConfig, DebertaFamily
from enricher.worker.inference.graph.bert import BertEncoder
from enricher.worker.inference.graph.weights import Weights, along, distances, most_places, token_places
from enricher.worker.records import Float32Array


@dataclass(frozen=True, slots=True)
class DistanceOrder:
    """The distances that windows of a model may have, as embeddings of distances."""

    rows: npt.NDArray[np.int64]
    """`[columns]`: the embeddings that are used, in the order in which longer windows need them. Windows of n tokens need
    the first 2n at most."""
    columns: npt.NDArray[np.int64]
    """`[distances]`: the place in `rows` of each distance: 0, 1, 2, ..., and from the end -1, -2, ..."""

    @classmethod
    def of(cls, config: DebertaConfig) -> Self:
        """All distances between the places of a window, padding included."""
        most = most_places(config)
        positive = np.arange(most)
        needed = np.stack([positive, -positive], axis=1).reshape(-1)
        used, first = np.unique(distance_rows(config, needed), return_index=True)
        rows, column_of = used[np.argsort(first)], np.empty(2 * config.span, np.int64)
        column_of[rows] = np.arange(len(rows))
        return cls(rows, column_of[distance_rows(config, np.concatenate([positive, 1 - most + positive[:-1]]))])


def distance_rows(config: DebertaConfig, given: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The embedding of each distance (of a query's place, less a key's): `build_relative_position` of transformers.

    With buckets, distances up to the middle have their own embedding, and larger ones share one with others, in logarithmic
    steps, which are rounded to float32 as they are there. Places behind the last one are padding, and count as the last.
    """
    furthest, span = config.max_position_embeddings - 1, config.span
    near = np.clip(given, -furthest, furthest)
    if config.position_buckets > 0:
        middle = config.position_buckets // 2
        far = np.abs(near) > middle
        steps = np.log(np.abs(near[far]).astype(np.float32) / np.float32(middle))
        steps /= np.log(np.float32((config.relative_positions - 1) / middle))
        near[far] = np.sign(near[far]) * (np.ceil(steps * np.float32(middle - 1)).astype(np.int64) + middle)
    return np.clip(near + span, 0, 2 * span - 1)


def embedded_distances(
    weights: Weights, family: DebertaFamily, config: DebertaConfig, order: DistanceOrder
) -> npt.NDArray[np.float64]:
    """`[columns, width]`: the embeddings of the distances, in this order, after their norm. Raises ModelError."""
    every = weights.read(f"{family.distances}.weight", (2 * config.span, config.hidden_size))
    values = every[order.rows].astype(np.float64)
    if not config.norms_distances:
        return values
    name, width = family.distances_norm, config.hidden_size
    values -= values.mean(axis=-1, keepdims=True)
    values /= np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + config.layer_norm_eps)
    return values * weights.read(f"{name}.weight", (width,)) + weights.read(f"{name}.bias", (width,))


@dataclass(frozen=True, slots=True)
class DebertaEncoder(BertEncoder):
    """Adds the nodes of the encoder. Methods raise ModelError if a weight does not fit."""

    family: DebertaFamily
    config: DebertaConfig
    order: DistanceOrder
    embedded: npt.NDArray[np.float64]
    """`[columns, width]`: the embeddings of the distances, in this order (`embedded_distances`)."""

    def _embeddings(self) -> str:
        """Word (+ position) (+ type 0) -> norm."""
        config, family, width = self.config, self.family, self.config.hidden_size
        words = self.weights.weight(family.embeddings("word_embeddings"), (config.vocab_size, width))
        total = self.writer.node("Gather", [words, "input_ids"], "words")
        added = np.zeros(width, np.float32)
        if config.type_vocab_size:
            types = f"{family.embeddings('token_type_embeddings')}.weight"
            added = self.weights.read(types, (config.type_vocab_size, width))[0]
        if config.position_biased_input:
            name = f"{family.embeddings('position_embeddings')}.weight"
            table = self.weights.read(name, (config.max_position_embeddings, width)) + added
            positions = self.variant.positions(self.writer, self.weights.write("positions.table", table))
            total = self.writer.node("Add", [total, positions], "embeddings.sum")
        elif config.type_vocab_size:
            total = self.writer.node("Add", [total, self.weights.write("type", added)], "embeddings.sum")
        return self.weights.norm(family.embeddings("LayerNorm"), total, width)

    def _attention(self, index: int, hidden: str) -> str:
        """The value's bias is folded as BERT's is. The key's is needed, because p2c multiplies it by the distances."""
        names, width = self.family.layer, self.config.hidden_size
        query = self._linear(self.family.in_layer(index, names.query), hidden, self._scale)
        key = self._linear(self.family.in_layer(index, names.key), hidden, 1.0)
        value = self.weights.matmul(self.family.in_layer(index, names.value), hidden, width, width)
        return self.variant.attention(
            self.writer,
            (query, key, value),
            heads=self.config.heads,
            output=f"layer.{index}.attention",
            scored=partial(self._scores, index),
        )

    @property
    def _scale(self) -> float:
        """The factor of all scores beside the root of a head's size, by which attention divides anyway."""
        return float((1 + len(self.config.terms)) ** -0.5)

    def _linear(self, name: str, hidden: str, scale: float) -> str:
        width = self.config.hidden_size
        weight, bias = self.weights.read(f"{name}.weight", (width, width)), self.weights.read(f"{name}.bias", (width,))
        product = self.weights.product(name, hidden, weight * np.float32(scale))
        written = self.weights.write(f"{name}.bias", bias * np.float32(scale))
        return self.writer.node("Add", [product, written], f"{name}.biased")

    def _scores(self, index: int, query: str, key: str) -> tuple[str, str, str]:
        """Query and key as they are, and the sum of the terms: `[windows, heads, length, length]`."""
        terms = [self._term(index, term, {"c2p": query, "p2c": key}[term]) for term in self.config.terms]
        total = terms[0] if len(terms) == 1 else self.writer.node("Add", terms, f"layer.{index}.by_distance")
        return query, key, total

    def _term(self, index: int, term: str, value: str) -> str:
        """Multiply the queries (or keys) by the distances; each pair of tokens takes the product of its distance.

        The products, `[windows, heads, length, columns]`, are flattened to `[windows, heads, length * columns]`, where the
        index of a pair is the same for all windows and heads.
        """
        node, output, heads = self.writer.node, f"layer.{index}.{term}", self.config.heads
        split = self._integers("by_head", 0, 0, heads, self.config.hidden_size // heads)
        by_head = node(
            "Transpose", [node("Reshape", [value, split], f"{output}.split")], f"{output}.by_head", perm=[0, 2, 1, 3]
        )
        table = self.weights.write(f"{output}.table", self._table(index, term))
        bounds = [self._integers("columns.first", 0), self._columns(value), self._integers("columns.axis", 2)]
        products = node("MatMul", [by_head, node("Slice", [table, *bounds], f"{output}.used")], f"{output}.products")
        flat = node("Reshape", [products, self._integers("flat", 0, 0, -1)], f"{output}.flat")
        return node("Gather", [flat, self._pairs(term, value)], output, axis=2)

    def _columns(self, value: str) -> str:
        """`int64 [1]`: the number of distances that windows of this length may need. On a GPU's host, as all shapes are."""
        node, columns = self.writer.node, "columns"
        if self.writer.has(columns):
            return columns
        places = token_places(self.writer, value, most_places(self.config))
        twice = node("Shape", [node("Concat", [places, places], "places.twice", axis=0)], "columns.most")
        every = self.writer.weight("columns.every", np.arange(len(self.order.rows)))
        used = node("Slice", [every, self._integers("columns.first", 0), twice], "columns.used")
        return node("Shape", [used], columns)

    def _pairs(self, term: str, value: str) -> str:
        """`int64 [length, length]`, by query and key: the index of the pair's product among the flattened ones."""
        node, pairs, column = self.writer.node, f"pairs.{term}", "pairs.column"
        if self.writer.has(pairs):
            return pairs
        places = token_places(self.writer, value, most_places(self.config))
        if not self.writer.has(column):
            table = self.writer.weight("columns.by_distance", self.order.columns)
            node("Gather", [table, distances(self.writer, places)], column)
            node("Mul", [places, self._columns(value)], "pairs.row")
        row = along(self.writer, "pairs.row", axis={"c2p": 1, "p2c": 0}[term])
        return node("Add", [row, column], pairs)

    def _integers(self, name: str, *values: int) -> str:
        return self.writer.constant(name, np.array(values, np.int64))

    def _table(self, index: int, term: str) -> Float32Array:
        """The projected distances, scaled as the scores are: `[heads, size, columns]`."""
        config, family, width = self.config, self.family, self.config.hidden_size
        shared = {"c2p": family.layer.key, "p2c": family.layer.query}[term]
        name = family.in_layer(index, shared if config.share_att_key else f"attention.self.{TERMS[term]}")
        weight = self.weights.read(f"{name}.weight", (width, width)).astype(np.float64)
        projected = self.embedded @ weight.T + self.weights.read(f"{name}.bias", (width,))
        size = width // config.heads
        # Queries are scaled already, keys are not.
        scale = size**-0.5 * (1.0 if term == "c2p" else self._scale)
        table = (projected * scale).reshape(-1, config.heads, size).transpose(1, 2, 0)
        return np.ascontiguousarray(table, np.float32)
