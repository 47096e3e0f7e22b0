"""Real nodes behind a proxy of the fault matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tools.chaos.proxy import Proxy
from tools.kafka import Cluster
from tools.kafka.versions import DEFAULT


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
