"""A streaming enrichment worker: reads articles from Kafka, writes entities to Kafka, exactly once, model in process."""

import os

# ONNX Runtime reads this when it is loaded; otherwise it sends usage data to its maker and stores a device id on disk.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
