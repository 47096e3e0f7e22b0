"""The one error of this package."""

from __future__ import annotations


class ClusterError(Exception):
    """The local Kafka cannot be set up, started or reached; the message says why and what to do."""
