"""What a variant is: one way to lay windows out for a device, both in the graph and in the arrays that feed it.

Each variant is a class in a file of its own (padded.py, ...); catalogue.py lists them by device, selection.py chooses one.
graph.py and engine.py know variants by this Protocol only, so a new one changes neither.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from enricher.inference.device.session import Feeds, Runtime
    from enricher.inference.graph.onnx_file import OnnxWriter
    from enricher.records import Window


class Variant(Protocol):
    """A layout. Nothing here blocks. The graph side is asked once per model, the array side once per batch."""

    @property
    def name(self) -> str:
        """Part of the file name in the cache: two variants never share one."""
        ...

    @property
    def precision(self) -> str:
        """What the encoder computes in, as the model card says it."""
        ...

    @property
    def reduced(self) -> bool:
        """True where it computes in less than float32: it then needs a passing gate report before it may serve."""
        ...

    @property
    def runtime(self) -> Runtime:
        """Which provider opens the session."""
        ...

    def problem(self) -> str | None:
        """Why this machine cannot run it, as a clause for a message ("the processor has no VNNI"); None where it can."""
        ...

    @property
    def packs(self) -> bool:
        """True where nothing is padded anywhere: windows of any lengths go together at no cost."""
        ...

    @property
    def token_dimensions(self) -> Sequence[str]:
        """The names of the dimensions that lay tokens out."""
        ...

    def declare_inputs(self, writer: OnnxWriter) -> None:
        """Declare `input_ids` and what else the variant feeds, and compute what every layer shares."""
        ...

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """The row of `table` (`[positions, width]`, first used position first) for each token, or what broadcasts to it."""
        ...

    def attention(self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str) -> str:
        """Attention within each window, over query, key and value; their biases are dealt with already."""
        ...

    def finish(self, folder: Path) -> None:
        """Change the built files in `folder` before they go into the cache. Blocks. Most variants have nothing to do."""
        ...

    def feeds(self, windows: Sequence[Window], pad_id: int) -> Feeds:
        """The arrays of a batch, by input name."""
        ...

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """The tokens that the device computes for this batch, padding of every kind included."""
        ...

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """Where the first token of each window is in an output of this shape, its `token_dimensions` made one.

        A window's other tokens follow the first. In the order of the windows, so they grow.
        """
        ...


def starts_in_a_row(windows: Sequence[Window]) -> Sequence[int]:
    """`Variant.starts` where windows follow one another without anything between."""
    return [*accumulate([len(window.ids) for window in windows[:-1]], initial=0)]
