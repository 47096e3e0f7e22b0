"""Nodes for the places of tokens within their window, and for distances, where attention depends on them.

Everything depends on the length of the batch alone, and is made once. Nothing here knows an architecture.
"""

from __future__ import annotations

import numpy as np

from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS


def most_places(config: EncoderConfig) -> int:
    """The places that a window may have. Those behind the last position are padding: variants may round lengths up."""
    return config.max_position_embeddings + LENGTH_STEP_TOKENS - 1


def token_places(writer: OnnxWriter, value: str, most: int) -> str:
    """`int64 [length]`: 0, 1, 2, ..., up to `most` of them, for `value`: `[windows, length, width]`, in any layer.

    A slice of a table, as positions are: CUDA would leave a range, and everything computed from it, to the CPU.
    """
    if writer.has("places"):
        return "places"
    table = writer.weight("places.table", np.arange(most, dtype=np.int64))
    length = writer.node("Shape", [value], "places.length", start=1, end=2)
    first, axis = (writer.constant(name, np.array([0], np.int64)) for name in ("places.first", "places.axis"))
    return writer.node("Slice", [table, first, length, axis], "places")


def distances(writer: OnnxWriter, places: str) -> str:
    """`int64 [length, length]`: the place of each query, less that of each key."""
    if writer.has("distances"):
        return "distances"
    queries, keys = along(writer, places, axis=1), along(writer, places, axis=0)
    return writer.node("Sub", [queries, keys], "distances")


def along(writer: OnnxWriter, places: str, *, axis: int) -> str:
    """`[length, 1]` for axis 1, a value for each query; `[1, length]` for axis 0, a value for each key."""
    output = f"{places}.along_{axis}"
    if writer.has(output):
        return output
    return writer.node("Unsqueeze", [places, writer.constant(f"axis_{axis}", np.array([axis], np.int64))], output)
