"""The metrics of several processes as one exposition: every sample gets the label `process`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from enricher.telemetry.exposition import exposed

LABEL = "process"
PLAIN = "text/plain"
"""What to ask the processes for: the form that is read here."""


def merged(expositions: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """The expositions (plain text, by the number of the process) in the form that `accept` asks for."""
    return exposed(lambda: _families(expositions), accept)


def _families(expositions: Mapping[str, str]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for number, text in expositions.items():
        for family in text_string_to_metric_families(text):
            whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            whole.samples += [sample._replace(labels={LABEL: number, **sample.labels}) for sample in family.samples]
    return families.values()
