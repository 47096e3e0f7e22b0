"""Records of a worker without tasks in its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enricher.worker.records import Article, Coverage, EnrichedRecord, Entity, ModelCard, TaskReport
from tools.worker_parts import only_task

MODEL = ModelCard("newswire-minilm", "sha256:6a1f0c", "int8")


def plain_record(
    article: Article,
    entities: Sequence[Entity],
    coverage: Coverage,
    *,
    model: ModelCard = MODEL,
    labels: Mapping[tuple[str, str], int] | None = None,
) -> EnrichedRecord:
    """The record in which this model found these entities."""
    return EnrichedRecord(article, entities, coverage, [TaskReport(only_task(model), coverage)], labels=labels or {})
