"""What a form is: one way to lay windows out for a device, both in the graph and in the arrays that feed it.

Each form is a class in a file of its own (padded.py); model.py chooses one for a device and a precision. graph.py and
engine.py know forms by this Protocol only, so a new one changes neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from enricher.inference.onnxfile import OnnxWriter
    from enricher.records import Window

Feeds = dict[str, "npt.NDArray[Any]"]


class Form(Protocol):
    """A layout. Nothing here blocks. The graph side is asked once per model, the array side once per batch."""

    @property
    def name(self) -> str:
        """Part of the file name in the cache: two forms never share one."""
        ...

    @property
    def precision(self) -> str:
        """What the encoder computes in, as the model card says it."""
        ...

    @property
    def token_dimensions(self) -> Sequence[str]:
        """The names of the dimensions that lay tokens out."""
        ...

    def declare_inputs(self, writer: OnnxWriter) -> None:
        """Declare `input_ids` and what else the form feeds, and compute what every layer shares."""
        ...

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """The row of `table` (`[positions, width]`, first used position first) for each token, or what broadcasts to it."""
        ...

    def attention(
        self, writer: OnnxWriter, projected: tuple[str, str, str], bias: str, *, heads: int, output: str
    ) -> str:
        """Attention within each window, over query, key and value without their biases; `bias` is theirs, joined."""
        ...

    def feeds(self, windows: Sequence[Window], pad_id: int) -> Feeds:
        """The arrays of a batch, by input name."""
        ...

    def rows(self, output: npt.NDArray[Any], windows: Sequence[Window]) -> list[npt.NDArray[Any]]:
        """What `output` (laid out as `token_dimensions`) says for each window: `[length]` each, padding cut off."""
        ...
