"""What a checkpoint's head finds, and what it reads of the encoder's output. Facts only; graph/heads.py builds heads.

A head ends the name of config.json's architecture (`ForTokenClassification`, `ForSequenceClassification`), or is a pooling
layer of sentence-transformers beside an encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from enricher.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.records import TaskKind

Reads = Literal["tokens", "first", "mean"]
"""What a head reads of the last hidden states: those of every token, of a window's first token (special tokens included),
or their mean over the tokens that the window owns."""
TOKENS: frozenset[Reads] = frozenset({"tokens"})
"""The reads of a pass with nothing but NER."""


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """One head. `labels` are names by id: IOB2 for `ner`, as config.json has them for `classification`, none for vectors."""

    kind: TaskKind
    labels: tuple[str, ...]
    multi_label: bool
    """True if each label has its own probability (sigmoid); False if they share one (softmax)."""
    reads: Reads
    normalised: bool
    """True if the article's vector has length 1. The graph normalises nothing: windows are pooled first."""
    dimensions: int
    """Values per token (`ner`) or window: the number of labels, or the width of the vector."""

    @classmethod
    def of_entities(cls, labels: tuple[str, ...]) -> HeadSpec:
        """Token classification."""
        return cls("ner", labels, multi_label=False, reads="tokens", normalised=False, dimensions=len(labels))


def require_ner(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint. Raises ModelError unless it finds entities: for what only makes sense then."""
    if checkpoint.head.kind == "ner":
        return checkpoint
    raise ModelError(
        f"{checkpoint.folder}: its head is for {checkpoint.head.kind}, and token classification (ner) is needed here. "
        f"Choose a ...ForTokenClassification checkpoint, or name this one in a task: [tasks.NAME] source = ..."
    )


def reads_of(heads: Sequence[HeadSpec]) -> frozenset[Reads]:
    """What the heads of a pass read together: the `reads` of `Variant.feeds` and `Variant.declare_inputs`."""
    return frozenset(head.reads for head in heads)
