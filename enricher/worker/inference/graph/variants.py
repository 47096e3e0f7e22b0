"""The Protocol of a variant: one layout and precision, for the graph and for the arrays that feed it.

Each variant is a class (padded.py, packed_cuda.py, external.py); run/selection.py lists them by device and chooses one.
Encoders, builder.py and the engine know only this Protocol, so a new variant changes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np

from enricher.worker.heads import TOKENS, Reads
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.device.sessions import Feeds, Runtime
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.records import Float32Array, Int32Array, Window

Scored = Callable[[str, str], tuple[str, str, str]]
"""Adds nodes over query and key, both `[windows, longest, width]`; the input `lengths` has the tokens of each window.
Returns query and key as attention takes them, and a bias that is added to its scores, `[windows or 1, heads or 1, longest,
longest]`; "" if there is none."""


class Variant(Protocol):
    """Graph methods are called once per model, array methods once per batch. None of them blocks."""

    @property
    def name(self) -> str:
        """The unique name, also of its graph in the cache and of its gate report."""
        ...

    @property
    def precision(self) -> str:
        """The precision of the encoder, as in the model card."""
        ...

    @property
    def reduced(self) -> bool:
        """True if it computes in less than float32: it may then serve only with a passing gate report."""
        ...

    @property
    def runtime(self) -> Runtime:
        """The runtime that opens the session."""
        ...

    @property
    def quantised(self) -> bool:
        """True if its float32 graph is made int8 after it is built, by the recipe in the model's folder."""
        ...

    def problem(self) -> str | None:
        """Why this machine cannot run it, as a clause for a message ("the processor has no VNNI"); None if it can."""
        ...

    def why_unsuited(self, config: EncoderConfig) -> str | None:
        """Why it does not run a model of this architecture, as a clause for a message; None if it does."""
        ...

    @property
    def packs(self) -> bool:
        """True if nothing is padded anywhere: windows of any lengths can share a batch at no cost."""
        ...

    @property
    def token_dimensions(self) -> Sequence[str]:
        """The names of the dimensions over tokens."""
        ...

    @property
    def window_dimension(self) -> str:
        """The name of the dimension over windows, the first one of `first_tokens` and `means`."""
        ...

    def declare_inputs(self, writer: OnnxWriter, reads: frozenset[Reads] = TOKENS) -> None:
        """Declare `input_ids`, the variant's other inputs and those for `reads`; add nodes that all layers share."""
        ...

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """The row of `table` (`[positions, width]`, first used position first) per token, or a value that broadcasts."""
        ...

    def attention(
        self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str, scored: Scored | None
    ) -> str:
        """Attention within each window, over query, key and value, which include their biases.

        `scored` changes how keys are scored. A variant that cannot do that is unsuited for architectures that need it.
        """
        ...

    def first_tokens(self, writer: OnnxWriter, hidden: str) -> str:
        """The last hidden state of each window's first token, special tokens included: `[windows, width]`."""
        ...

    def means(self, writer: OnnxWriter, hidden: str, reads: Reads) -> str:
        """The mean of the last hidden states over the tokens that each window owns, or over all: `float32 [windows, width]`.

        `reads`: "mean" or "whole", and only after `declare_inputs` with it. Zero for a window that owns no token.
        """
        ...

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """The arrays of a batch, by input name, for a graph whose heads read `reads` (`reads_of`)."""
        ...

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """The tokens that the device computes for this batch, padding of every kind included."""
        ...

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """The index of each window's first token in an output of this shape, flattened over `token_dimensions`.

        A window's other tokens follow the first. The indices increase, in the order of the windows.
        """
        ...


def starts_in_a_row(windows: Sequence[Window]) -> Sequence[int]:
    """`Variant.starts` for windows that follow one another without gaps."""
    return [*accumulate([len(window.ids) for window in windows[:-1]], initial=0)]


def owned_ranges(windows: Sequence[Window]) -> Int32Array:
    """`int32 [2, windows]`: where each window's owned tokens begin and end, counted from its first token."""
    owned = [window.owned_tokens(0) for window in windows]
    return np.array([[each.start for each in owned], [max(each.start, each.stop) for each in owned]], np.int32)


MEANS: Mapping[Reads, str] = {"mean": "owned", "whole": "whole"}
"""The inputs of padded graphs with the weights of means."""


def mean_inputs(reads: frozenset[Reads]) -> list[str]:
    """The inputs of `MEANS` for these reads, always in the same order."""
    return [name for each, name in MEANS.items() if each in reads]


def mean_weights(windows: Sequence[Window], length_tokens: int, reads: frozenset[Reads]) -> dict[str, Float32Array]:
    """The values of `mean_inputs`."""
    weights: dict[str, Float32Array] = {}
    if "mean" in reads:
        weights[MEANS["mean"]] = _shares(owned_ranges(windows), length_tokens)
    if "whole" in reads:
        lengths = [window.length_tokens for window in windows]
        weights[MEANS["whole"]] = _shares(np.array([[0] * len(lengths), lengths], np.int32), length_tokens)
    return weights


def _shares(ranges: Int32Array, length_tokens: int) -> Float32Array:
    """`float32 [windows, length_tokens]`: one over the number of tokens in each window's range, at these tokens; else 0.

    `ranges`: as `owned_ranges` has them.
    """
    starts, stops = ranges
    places = np.arange(length_tokens, dtype=np.int32)
    inside = (places >= starts[:, None]) & (places < stops[:, None])
    share = (1 / np.maximum(stops - starts, 1)).astype(np.float32)
    weights: Float32Array = inside * share[:, None]
    return weights


def weighted_sums(writer: OnnxWriter, weights: str, values: str, output: str) -> str:
    """`[rows, places]` and `[rows, places, width]` -> `[rows, width]`. No row's values reach another, even NaN."""
    middle = writer.constant("middle_axis", np.array([1], np.int64))
    row = writer.node("Unsqueeze", [weights, middle], f"{output}.weights")
    product = writer.node("MatMul", [row, values], f"{output}.kept")
    return writer.node("Squeeze", [product, middle], output)
