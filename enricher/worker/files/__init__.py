"""The worker's sources and sinks without Kafka: JSON lines, archives in Parquet, and values in memory.

Nothing here is exactly once: a file has no transactions, so after a crash a run starts again from the first line.
"""

from enricher.worker.files.finite_sources import STDIN, FiniteSource, Line, LineSource, read_lines
from enricher.worker.files.plain_sinks import LineSink, partial_name, whole_file
