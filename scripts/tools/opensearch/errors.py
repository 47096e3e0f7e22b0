"""The errors that this package raises."""

from __future__ import annotations


class OpenSearchError(Exception):
    """The local OpenSearch cannot be set up, started or reached; the message says why and what to do."""
