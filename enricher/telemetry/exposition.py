"""Metrics as Prometheus reads them: families in, text out. The client library writes it, and picks the form."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


def exposed(families: Callable[[], Iterable[Metric]], accept: str) -> tuple[bytes, str]:
    """These families in the form that `accept` (an HTTP header) asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # the library compares versions, and not all that a client may write there is one
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would collect to find out."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Each once, as the format wants it."""
        return self._families()
