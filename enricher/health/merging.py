"""The metrics of several processes as one exposition: every sample gets the label `process`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LABEL = "process"
PLAIN = "text/plain"
"""What to ask the processes for: the form that is read here."""


def merged(expositions: Mapping[int, str], accept: str) -> tuple[bytes, str]:
    """The expositions (plain text, by the number of the process) in the form that `accept` asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(_families(expositions)))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would collect to find out."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Each family once, as the format wants it."""
        yield from self._families


def _families(expositions: Mapping[int, str]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for number, text in expositions.items():
        for family in text_string_to_metric_families(text):
            whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            whole.samples += [
                sample._replace(labels={LABEL: str(number), **sample.labels}) for sample in family.samples
            ]
    return families.values()
