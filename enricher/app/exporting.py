"""Settings -> what leaves the process besides records: the log's form, traces and metrics by OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version

from enricher.ports import Tracing
from enricher.settings import Settings
from enricher.telemetry import logs
from enricher.telemetry.observed import Observed
from enricher.telemetry.otlp import exported_metrics, exported_spans, resource_of
from enricher.telemetry.tracing import PassingOn


class Exports:
    """What is exported while a process works. Made by `exports`."""

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
        """From now on the metrics of this worker go out, if any are wanted."""
        self._stack.enter_context(exported_metrics(observed, self._resource))


def log_format(settings: Settings) -> str:
    """What the log's form is here: `auto` depends on where it goes."""
    return logs.resolved(settings.log.format)


def set_up_log(settings: Settings, process: int | None = None) -> None:
    """The log in the form that is wanted. `process`: the number of this one among several."""
    logs.set_up(settings.log.format, repeats_per_minute=settings.log.repeats_per_minute, process=process)


@contextmanager
def exports(settings: Settings) -> Iterator[Exports]:
    """Traces and metrics where the `OTEL_*` variables say. Raises SettingsError."""
    with ExitStack() as stack:
        yield Exports(settings, stack)
