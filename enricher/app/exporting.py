"""Settings -> logs, and traces and metrics exported by OTLP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from enricher.app.observing import worker_facts
from enricher.settings import Settings, variable_name
from enricher.telemetry import logs
from enricher.telemetry.observed import Observed
from enricher.telemetry.otlp import exported_metrics, exported_spans
from enricher.telemetry.tracing import PassingOn
from enricher.worker.ports import Tracing


class Exports:
    """The exporters of a running process. Created by `exports`."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self._stack = stack
        self.tracing: Tracing = stack.enter_context(exported_spans(worker_facts(settings))) or PassingOn()

    def metrics_of(self, observed: Observed) -> None:
        """Export the metrics of this worker from now on, if the `OTEL_*` variables ask for it."""
        self._stack.enter_context(exported_metrics(observed))


def log_format(settings: Settings) -> str:
    """The format of the log, with `auto` resolved for this process."""
    return logs.resolved(settings.log.format)


def set_early_log_form() -> None:
    """Set the format from the environment alone, because reading the settings may fail."""
    known: dict[str, Literal["json", "text"]] = {"json": "json", "text": "text"}
    logs.set_form(known.get(os.environ.get(variable_name("log", "format"), ""), "auto"))


def set_up_log(settings: Settings, process: int | None = None) -> None:
    """Set up the log as the settings say. `process`: number of this process among several."""
    logs.set_up(settings.log.format, repeats_per_minute=settings.log.repeats_per_minute, process=process)


@contextmanager
def exports(settings: Settings) -> Iterator[Exports]:
    """Export traces and metrics as the `OTEL_*` variables say while the body runs. Raises SettingsError."""
    with ExitStack() as stack:
        yield Exports(settings, stack)
