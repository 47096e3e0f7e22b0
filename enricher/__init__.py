"""A streaming enrichment worker: articles from Kafka, entities to Kafka, exactly once, with the model in the process."""

import os

# Read by ONNX Runtime when it is loaded. Otherwise it sends usage data to its maker, and writes a device id into the cache.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
