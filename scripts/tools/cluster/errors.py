"""The error that this package raises."""

from __future__ import annotations


class ToolsError(Exception):
    """A tool cannot be built, or the cluster cannot be started; the message says why and what to do."""
