"""A real Apache Kafka for development, the demo and the tests: no Java, no Maven, no containers.

    from broker import Cluster

    with Cluster(nodes=1) as cluster:
        print(cluster.bootstrap_servers)

This package knows Kafka's server and nothing of `enricher`; `enricher` never imports it.
"""

from broker.cluster import Cluster
from broker.errors import ClusterError
from broker.node import Node
from broker.properties import Listener

__all__ = ["Cluster", "ClusterError", "Listener", "Node"]
