"""A real Kubernetes API server without containers, and the operators' tools, built from source into the user's cache.

Tests ask `found` for a tool, and skip with `missing` if it is not built; tests never fetch anything.
"""

from __future__ import annotations

from tools.cluster.table import found, missing

__all__ = ["found", "missing"]
