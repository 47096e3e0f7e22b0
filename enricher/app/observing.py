"""Settings, a model and a worker -> what telemetry and health read."""

from __future__ import annotations

from importlib.metadata import version

from enricher.app.model import Model
from enricher.settings import Settings
from enricher.telemetry.gpu import gpu_meter
from enricher.telemetry.observed import ModelFacts, Observed, WorkerFacts
from enricher.worker.loop import Worker


def worker_facts(settings: Settings) -> WorkerFacts:
    """Which worker these settings describe."""
    kafka = settings.kafka
    return WorkerFacts(
        instance=kafka.instance,
        group=kafka.group_id,
        input_topic=kafka.input_topic,
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        version=version("enricher"),
    )


def observed(settings: Settings, model: Model, worker: Worker) -> Observed:
    """What telemetry and health read of a worker between two Kafka topics."""
    card, device = model.card, model.prepared.device
    return Observed(
        worker=worker_facts(settings),
        model=ModelFacts(card.name, card.digest, card.precision, model.engine.provider, device),
        counters=worker.counters,
        snapshot=worker.snapshots.read,
        gpus=gpu_meter(model.prepared.device_id if device == "cuda" else None),
    )
