"""A real Apache Kafka for development, the demo and the tests: no Java, no Maven, no containers.

    from tools.kafka import Cluster

    with Cluster(nodes=1) as cluster:
        print(cluster.bootstrap_servers)

This package knows Kafka's server and nothing of `enricher`; `enricher` never imports it.
"""

from tools.kafka.cluster import Cluster
from tools.kafka.node import Node
from tools.kafka.properties import Listener
from tools.kafka.versions import ClusterError

__all__ = ["Cluster", "ClusterError", "Listener", "Node"]
