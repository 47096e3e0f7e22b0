"""Settings -> the log, traces and metrics over OTLP, and what telemetry reads of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Literal

from enricher.app.model import Model
from enricher.settings import Settings, variable_name
from enricher.telemetry import logs
from enricher.telemetry.gpu import gpu_meter
from enricher.telemetry.observed import ModelFacts, Observed
from enricher.telemetry.otlp import exported_metrics, exported_spans, resource_of
from enricher.telemetry.tracing import PassingOn
from enricher.worker.loop import Worker
from enricher.worker.ports import Tracing


class Exports:
    """What a process exports while it works. Made by `exports`."""

    def __init__(self, settings: Settings, open_until_the_end: ExitStack) -> None:
        kafka = settings.kafka
        self._stack = open_until_the_end
        self._resource = resource_of(version("enricher"), kafka.instance)
        spans = self._stack.enter_context(
            exported_spans(
                self._resource,
                version=version("enricher"),
                input_topic=kafka.input_topic,
                output_topic=kafka.output_topic,
                group=kafka.group_id,
            )
        )
        self.tracing: Tracing = spans or PassingOn()

    def metrics_of(self, observed: Observed) -> None:
        """Export the metrics of this worker from now on, if the `OTEL_*` variables ask for it."""
        self._stack.enter_context(exported_metrics(observed, self._resource))


def log_format(settings: Settings) -> str:
    """The format of the log in this process; `auto` depends on where the log goes."""
    return logs.resolved(settings.log.format)


def set_early_log_form() -> None:
    """Set the log format from the environment alone, so that mistakes in the settings are logged in it."""
    known: dict[str, Literal["json", "text"]] = {"json": "json", "text": "text"}
    logs.set_form(known.get(os.environ.get(variable_name("log", "format"), ""), "auto"))


def set_up_log(settings: Settings, process: int | None = None) -> None:
    """Set up the log as the settings say. `process`: the number of this process among several."""
    logs.set_up(settings.log.format, repeats_per_minute=settings.log.repeats_per_minute, process=process)


@contextmanager
def exports(settings: Settings) -> Iterator[Exports]:
    """Export traces and metrics as the `OTEL_*` variables say. Raises SettingsError."""
    with ExitStack() as stack:
        yield Exports(settings, stack)


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
