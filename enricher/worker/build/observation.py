"""Settings, a model and a worker -> what telemetry and health read."""

from __future__ import annotations

from enricher.distribution import installed_version
from enricher.worker.build.loaded_tasks import Tasks
from enricher.worker.inference.device import driver
from enricher.worker.loop.loop import Worker
from enricher.worker.settings import Settings
from enricher.worker.telemetry.observed import ModelFacts, Observed, WorkerFacts, gpu_meter


def worker_facts(settings: Settings) -> WorkerFacts:
    """Which worker these settings describe."""
    kafka = settings.kafka
    return WorkerFacts(
        instance=kafka.instance,
        group=kafka.group_id,
        input_topic=", ".join(kafka.inputs),
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        version=installed_version(),
    )


def observe(settings: Settings, tasks: Tasks, worker: Worker) -> Observed:
    """The parts of a worker between two Kafka topics that telemetry and health read."""
    model, card = tasks.model, tasks.card
    device = model.prepared.device
    gpu = driver.gpu(model.prepared.device_id) if device == "cuda" else None
    return Observed(
        worker=worker_facts(settings),
        model=ModelFacts(card.name, card.digest, card.precision, model.engine.provider, device),
        counters=worker.counters,
        snapshot=worker.snapshots.read,
        gpus=gpu_meter(gpu.pci_bus_id, gpu.uuid) if gpu else tuple,
    )
