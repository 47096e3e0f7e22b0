"""Real nodes behind a proxy."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tools.chaos.proxy import Proxy
from tools.kafka import Cluster
from tools.kafka.versions import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def nodes_behind_a_proxy(
    nodes: int, *, version: str = DEFAULT, properties: Mapping[str, str] | None = None
) -> Iterator[tuple[Proxy, Cluster]]:
    """A proxy, and the warm nodes that advertise the proxy to their clients."""
    with (
        Proxy(nodes=nodes) as proxy,
        Cluster(
            nodes,
            version=version,
            listeners={"PROXIED": "PLAINTEXT"},
            advertised={"PROXIED": proxy.ports},
            properties=properties,
        ) as cluster,
    ):
        proxy.pass_on_to(cluster.ports_of("PROXIED"))
        cluster.warm_up()
        yield proxy, cluster
