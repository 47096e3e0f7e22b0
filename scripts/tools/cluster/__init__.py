"""A real Kubernetes API server without containers, and the operators' tools, built from source into the user's cache.

Tests ask `found` for a tool and skip with `missing` where it is not there; nothing here is ever fetched by a test.
"""

from __future__ import annotations

from tools.cluster.table import found, missing

__all__ = ["found", "missing"]
