"""The worker's sources and sinks without Kafka: JSON lines, archives in Parquet, and values in memory.

Nothing here is exactly once: a file has no transactions, so after a crash a run starts again from the first line.
"""

from enricher.worker.files.finite import FiniteSource
from enricher.worker.files.line_sink import LineSink, partial_name, whole_file
from enricher.worker.files.line_source import STDIN, Line, LineSource, read_lines

__all__ = ["STDIN", "FiniteSource", "Line", "LineSink", "LineSource", "partial_name", "read_lines", "whole_file"]
