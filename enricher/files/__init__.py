"""Articles from JSON lines and records to JSON lines: what the worker reads and writes where there is no Kafka.

Two adapters that match the Protocols of `enricher.worker.ports` by shape. Nothing here is exactly-once: a file has no
transactions, so a run that dies starts again from the first line.
"""

from enricher.files.sink import LineSink
from enricher.files.source import STDIN, LineSource
from enricher.files.whole import partial_name, whole_file

__all__ = ["STDIN", "LineSink", "LineSource", "partial_name", "whole_file"]
