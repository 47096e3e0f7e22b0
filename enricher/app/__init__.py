"""The composition root: the only place that wires settings to parts."""

from enricher.app.building import file_worker, kafka_config, kafka_worker
from enricher.app.exporting import Exports, exports, log_format, set_early_log_form, set_up_log
from enricher.app.model import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_BUCKET_EDGES,
    DEFAULT_EARLY_OVERHEAD,
    Model,
    batch_rules,
    load_model,
    window_cutter,
    window_lengths,
)
from enricher.app.observing import observed, worker_facts

__all__ = [
    "DEFAULT_BATCH_TOKENS",
    "DEFAULT_BUCKET_EDGES",
    "DEFAULT_EARLY_OVERHEAD",
    "Exports",
    "Model",
    "batch_rules",
    "exports",
    "file_worker",
    "kafka_config",
    "kafka_worker",
    "load_model",
    "log_format",
    "observed",
    "set_early_log_form",
    "set_up_log",
    "window_cutter",
    "window_lengths",
    "worker_facts",
]
