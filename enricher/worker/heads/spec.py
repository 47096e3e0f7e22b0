"""Facts about a checkpoint's head, as its folder describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from enricher.worker.records import TaskKind

Reads = Literal["tokens", "first", "mean"]
"""The part of the last hidden states that a head reads: those of every token, of a window's first token (special tokens
included), or their mean over the tokens that the window owns."""
TOKENS: frozenset[Reads] = frozenset({"tokens"})
"""The reads of a graph with nothing but NER."""
Layers = Literal["labels", "classifier", "none"]
"""The layers that the graph adds to these states: a label and its score for each token; the two layers of a
`ForSequenceClassification` head; none."""


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """One head. `labels` are names by id: position and kind for `ner`, as in config.json for `classification`, else none."""

    kind: TaskKind
    labels: tuple[str, ...]
    multi_label: bool
    """True if each label has its own probability (sigmoid); False if they share one (softmax)."""
    reads: Reads
    normalised: bool
    """True if the article's vector has length 1. The graph normalises nothing: windows are pooled first."""
    dimensions: int
    """Values per token (`ner`) or window, such as the number of labels, or the width of the vector."""


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """A checkpoint's folder without its weights. Heads read files only through it; names are relative to the folder."""

    folder: Path
    """The folder, which messages name."""
    architecture: str
    config: Mapping[str, Any]
    """The values of config.json; those of the encoder were checked before a head is described."""
    has: Callable[[str], bool]
    """Whether a file exists."""
    read: Callable[[str], bytes]
    """The content of a file. Raises OSError."""
    read_object: Callable[[str], Mapping[str, Any]]
    """The values of a JSON object. Raises ModelError."""


def reads_of(heads: Sequence[HeadSpec]) -> frozenset[Reads]:
    """The reads of all heads of a graph: the `reads` of `Variant.feeds` and `Variant.declare_inputs`."""
    return frozenset(head.reads for head in heads)
