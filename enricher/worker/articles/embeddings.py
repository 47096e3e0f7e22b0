"""Writes vectors, as text, once: right after the model has made them. `enriched` puts them into records."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import orjson

from enricher.errors import InvalidArticle
from enricher.worker.records import Embedding, hot_record

if TYPE_CHECKING:
    from enricher.worker.records import Float32Array, TaskCard

_FLOAT16 = np.dtype("<f2")


@hot_record(eq=False)
class WrittenEmbeddings(Sequence[Embedding]):
    """Vectors as the JSON of their record; parsed again when accessed.

    A vector may be a view of the output of a whole batch, which text does not keep in memory.
    """

    json: bytes
    cards: tuple[TaskCard, ...]
    vector_bytes: int
    """Size of the vectors in `json`, without what stands around them."""

    def __len__(self) -> int:
        return len(self.cards)

    def __iter__(self) -> Iterator[Embedding]:
        for card, written in zip(self.cards, orjson.loads(self.json), strict=True):
            yield Embedding(card, _vector(written))

    @overload
    def __getitem__(self, index: int) -> Embedding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Embedding]: ...
    def __getitem__(self, index: int | slice) -> Embedding | Sequence[Embedding]:
        return list(self)[index]


def write_embeddings(embeddings: Sequence[Embedding]) -> WrittenEmbeddings:
    """Serialise vectors: float32 with the fewest digits that give the same float32 again, or float16 in base64.

    Raises InvalidArticle, of stage `publish`, for a value that is not finite, also after rounding to float16.
    """
    if isinstance(embeddings, WrittenEmbeddings):
        return embeddings
    parts, vector_bytes = [], 0
    for embedding in embeddings:
        name, text = _text(embedding)
        vector_bytes += len(text)
        parts.append({
            "task": embedding.task.name,
            "dimensions": len(embedding.vector),
            "pooling": embedding.task.pooling,
            name: orjson.Fragment(text),
        })  # fmt: skip
    cards = tuple(embedding.task for embedding in embeddings)
    return WrittenEmbeddings(orjson.dumps(parts), cards, vector_bytes)


def embedding_values(written: WrittenEmbeddings) -> list[dict[str, Any]]:
    """The vectors as values for Avro and Protobuf: lists of numbers, or the bytes of float16."""
    values: list[dict[str, Any]] = orjson.loads(written.json)
    for value in values:
        if "vector_float16" in value:
            value["vector_float16"] = b64decode(value["vector_float16"])
    return values


def _text(embedding: Embedding) -> tuple[str, bytes]:
    """The field, and its JSON."""
    vector = np.ascontiguousarray(embedding.vector, np.float32)
    if embedding.task.vector_format == "float16":
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            halves = vector.astype(_FLOAT16)
        _refuse_infinite(embedding, vector)
        if not np.isfinite(halves).all():
            name = embedding.task.name
            raise InvalidArticle(f"the vector of task {name!r} is beyond float16: vector=list", stage="publish")
        return "vector_float16", b'"' + b64encode(halves.tobytes()) + b'"'
    _refuse_infinite(embedding, vector)
    return "vector", orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)


def _refuse_infinite(embedding: Embedding, vector: Float32Array) -> None:
    if not np.isfinite(vector).all():
        raise InvalidArticle(f"the vector of task {embedding.task.name!r} is not finite", stage="publish")


def _vector(written: dict[str, Any]) -> Float32Array:
    if "vector" in written:
        return np.array(written["vector"], np.float32)
    return np.frombuffer(b64decode(written["vector_float16"]), _FLOAT16).astype(np.float32)
