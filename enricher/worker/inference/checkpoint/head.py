"""Asks for a checkpoint whose head suits what is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.worker.heads import KINDS

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint


def require_ner(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint. Raises ModelError unless it finds entities: for what only makes sense then."""
    if KINDS[checkpoint.head.kind].serves_alone:
        return checkpoint
    raise ModelError(
        f"{checkpoint.folder}: its head is for {checkpoint.head.kind}, and token classification (ner) is needed here. "
        f"Choose a ...ForTokenClassification checkpoint, or name this one in a task: [tasks.NAME] source = ..."
    )
