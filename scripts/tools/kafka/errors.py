"""The error that this package raises."""

from __future__ import annotations


class ClusterError(Exception):
    """The local Kafka cannot be set up, started or reached; the message says why and what to do."""
