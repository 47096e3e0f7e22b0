"""Every span: name, kind, description, attributes. The only list of them; `tracing.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from enricher.telemetry.readings import DESTINATION, ERROR_TYPE, GROUP, OPERATION, OUTCOME, SYSTEM

MESSAGES = "messaging.batch.message_count"
WINDOWS = "enricher.windows"
TOKENS = "enricher.tokens"


@dataclass(frozen=True, slots=True)
class SpanName:
    """One kind of span. `name` may have a topic behind it, as the conventions have it; `kind` as OpenTelemetry names it."""

    name: str
    kind: str
    description: str
    attributes: tuple[str, ...]


SPANS: tuple[SpanName, ...] = (
    SpanName("process", "consumer", "An article, from its arrival to its commit: child of the publisher's span, linked "
             "with its batches and its transaction.", (SYSTEM, OPERATION, DESTINATION, GROUP, OUTCOME, ERROR_TYPE)),
    SpanName("infer", "internal", "A batch, from the queue to its labels.", (WINDOWS, TOKENS)),
    SpanName("commit", "client", "A transaction.", (SYSTEM, OPERATION, DESTINATION, GROUP, MESSAGES,
             ERROR_TYPE)),
)  # fmt: skip
