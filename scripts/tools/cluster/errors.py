"""The one error of this package."""

from __future__ import annotations


class ToolsError(Exception):
    """A tool cannot be built, or the cluster cannot be started; the message says why and what to do."""
