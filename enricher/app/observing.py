"""Settings, a model and a worker -> what telemetry reads."""

from __future__ import annotations

from importlib.metadata import version

from enricher.app.model import Model
from enricher.settings import Settings
from enricher.telemetry.gpu import gpu_meter
from enricher.telemetry.observed import ModelFacts, Observed
from enricher.worker.loop import Worker


def observed(settings: Settings, model: Model, worker: Worker) -> Observed:
    """What telemetry reads from a worker between Kafka topics."""
    card, kafka, device = model.card, settings.kafka, model.prepared.device
    return Observed(
        input_topic=kafka.input_topic,
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        group=kafka.group_id,
        version=version("enricher"),
        model=ModelFacts(card.name, card.digest, card.precision, model.engine.provider, device),
        counters=worker.counters,
        snapshot=worker.snapshots.read,
        gpus=gpu_meter(model.prepared.device_id if device == "cuda" else None),
    )
